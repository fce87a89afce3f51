package daemon

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestExport: a snapshot of the real kernel in each format, made by somebody
// who may nothing, and read by the format's own reader: each has every event
// that babeltrace2 finds in the trace.
func TestExport(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: [kernel, user]", "snapshot: {before: 60ms, after: 20ms}")),
		"--recorder-size", "16MiB", "--recorder-events", "sched,irq,timer,block,workqueue,process,syscall")
	stop := load(t) // wakes, switches and calls
	naps(t, uid, 1, 30*time.Millisecond, 1)
	m := account(t, d, 1, "nap")[0]
	stop()
	snap := filepath.Join(d.snaps, m.ID)
	events := readTrace(t, snap)
	markers := 2 * len(m.Outliers)

	public := publicDir(t, "")
	dir := filepath.Join(public, "snap")
	out, err := exec.Command("cp", "-r", snap, dir).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	if out, err := exec.Command("chmod", "-R", "a+rX", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	inserted := 0 // switches in the last export that were not in the trace
	export := func(format string, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), built.tailcam, append([]string{"export", dir, "--format", format}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		// Some machines keep switches from every tracer, which is said.
		left := regexp.MustCompile(`(?m)^the kernel left out switches: .*\n`)
		inserted = 0
		_, _ = fmt.Sscanf(string(left.Find(stderr.Bytes())), "the kernel left out switches: the export has %d", &inserted)
		said := left.ReplaceAllString(stderr.String(), "")
		assert.Assert(t, err == nil && strings.TrimSpace(said) == "", "export %s: %v\n%s", format, err, said)
		return out
	}

	t.Run("json", func(t *testing.T) {
		type one struct {
			Mono     uint64 `json:"mono_ns"`
			CPU, TID int
		}
		left := map[one]int{}
		for i := range events {
			left[one{events[i].time, events[i].cpu, events[i].tid}]++
		}
		got := lines[struct {
			one
			Time   time.Time
			Event  string
			Fields map[string]any
		}](t, string(export("json")))
		for i := range got {
			left[got[i].one]--
			assert.Check(t, got[i].Time.UnixNano() == int64(got[i].Mono)+m.Window.WallMinusMono,
				"%+v: its two times differ", got[i])
			assert.Check(t, got[i].Event != "sched_switch" || got[i].Fields["prev_comm"] != nil && got[i].Fields["next_tid"] != nil,
				"%+v", got[i])
		}
		for e, n := range left {
			assert.Check(t, n == 0, "%+v: babeltrace2 finds %d more than there are lines", e, n)
		}
		assert.Check(t, len(got) == len(events) && len(got) >= 100, "%d lines, %d events", len(got), len(events))
	})
	t.Run("text", func(t *testing.T) {
		line := regexp.MustCompile(`^ *.+ +\d+ \[\d{3}\] +\d+\.\d{9}: [a-z_0-9]+:\w+:( |$)`)
		text := strings.TrimSuffix(string(export("text")), "\n")
		n := 0
		for l := range strings.SplitSeq(text, "\n") {
			if n++; !line.MatchString(l) {
				t.Fatalf("no line of perf script: %q", l)
			}
		}
		assert.Check(t, n == len(events), "%d lines, %d events", n, len(events))
	})
	t.Run("perfetto", func(t *testing.T) {
		path := needTool(t, "protoc", "protobuf-compiler")
		cmd := exec.CommandContext(t.Context(), path, "--proto_path=../../../export/perfetto", "--decode=perfetto.protos.Trace",
			"../../../export/perfetto/trace.proto")
		cmd.Stdin = bytes.NewReader(export("perfetto"))
		out, err := cmd.Output()
		assert.NilError(t, err)
		unknown := regexp.MustCompile(`(?m)^ *\d+(:| \{).*`).Find(out)
		assert.Check(t, unknown == nil, "the schema does not have %q", unknown)
		n := bytes.Count(out, []byte("\n    event {\n"))
		assert.Check(t, n == len(events)-markers+inserted, "%d ftrace events, want %d and %d inserted", n, len(events)-markers, inserted)
		for _, kind := range []string{"sched_switch", "sched_waking", "sys_enter", "softirq_entry"} {
			ctf := map[string]string{"sched_switch": kind, "sched_waking": kind, "sys_enter": "syscall_entry_", "softirq_entry": "irq_softirq_entry"}[kind]
			want := 0
			for i := range events {
				if strings.HasPrefix(events[i].name, ctf) {
					want++
				}
			}
			if kind == "sched_switch" {
				want += inserted
			}
			n := bytes.Count(out, []byte("\n      "+kind+" {\n"))
			assert.Check(t, n == want && n != 0, "%d of %s, want %d", n, kind, want)
		}
		for _, want := range []string{`callstack_iid: 1`, `name: "outlier nap"`, `name: "verdict"`, `name: "#0 nap"`} {
			assert.Check(t, bytes.Contains(out, []byte(want)), "%s is missing", want)
		}
		assert.Check(t, regexp.MustCompile(`name: ".*wakes inj-syscall`).Match(out), "nobody wakes the task")
	})
	t.Run("ctf", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "copy")
		assert.NilError(t, os.Mkdir(out, 0o777))
		for _, p := range []string{filepath.Dir(filepath.Dir(out)), filepath.Dir(out), out} {
			assert.NilError(t, os.Chmod(p, 0o777)) // whatever the umask
		}
		export("ctf", "-O", filepath.Join(out, "trace"))
		n := len(readTrace(t, out))
		assert.Check(t, n == len(events),
			"babeltrace2 finds %d events in the copy, %d in the trace", n, len(events))
		o := &m.Outliers[0]
		export("ctf", "-O", filepath.Join(out, "trace"), "--force", "--before", "0s", "--after", "0s")
		// Of the state dump, which stands before all, a copy has what it needs.
		of := func(list []event) (n int) {
			for i := range list {
				if e := &list[i]; e.time >= o.StartMono && e.time <= o.EndMono && !strings.HasPrefix(e.name, "lttng_statedump_") {
					n++
				}
			}
			return n
		}
		if n, want := of(readTrace(t, out)), of(events); n != want || n == 0 {
			t.Errorf("babeltrace2 finds %d events of the outlier in the copy, %d in the trace", n, want)
		}
	})
	t.Run("folded", func(t *testing.T) {
		out := string(export("folded"))
		stack, weight, _ := strings.Cut(strings.TrimSpace(out), " ") // no name of the injector's has a space
		assert.Check(t, weight == fmt.Sprint(m.Outliers[0].DelayNS) &&
			strings.HasPrefix(stack, "nap;inj-syscall;") && strings.Contains(stack, "_[k]"), "%s", out)
		// Of one task's time nothing is counted twice.
		var sum, all int64
		for l := range strings.Lines(string(export("folded", "--time", "oncpu"))) {
			var ns int64
			_, err := fmt.Sscan(l[strings.LastIndexByte(l, ' ')+1:], &ns)
			assert.NilError(t, err)
			sum += ns
		}
		cpus := map[int][2]uint64{}
		for i := range events {
			if e := &events[i]; !strings.HasPrefix(e.name, "tailcam_") && !strings.HasPrefix(e.name, "lttng_") {
				span, ok := cpus[e.cpu]
				if !ok {
					span[0] = e.time
				}
				cpus[e.cpu] = [2]uint64{span[0], e.time}
			}
		}
		last := events[len(events)-1].time
		for _, span := range cpus {
			all += int64(last - span[0])
		}
		assert.Check(t, sum > 0 && sum <= all, "tasks ran %d ns on CPUs that were there for %d ns", sum, all)
	})
	t.Run("svg", func(t *testing.T) {
		path := needTool(t, "chromium", "chromium")
		file := filepath.Join(t.TempDir(), "nap.svg")
		assert.NilError(t, os.WriteFile(file, export("svg"), 0o600))
		page, err := exec.CommandContext(t.Context(), path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+file+"#search=inj-syscall").Output()
		assert.NilError(t, err)
		if n := bytes.Count(page, []byte(`data-d="`)); n < 5 || !bytes.Contains(page, []byte(`data-zoom="0"`)) ||
			!bytes.Contains(page, []byte("“inj-syscall”: 1 frames, 100.00 %")) {
			t.Errorf("%d frames in the browser:\n%s", n, page)
		}
	})
}
