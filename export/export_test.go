package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

const storyText = `           other      11 [000] 5.000000000: sched:sched_switch: prev_comm=other prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=victim next_pid=10 next_prio=120 next_tgid=10
          victim      10 [000] 5.000000100: tailcam:entry: rule=slow-read track=syscall delay_ns=16900 pid=10 tgid=10 comm=victim outlier=0
          victim      10 [000] 5.000000100: syscalls:sys_enter_read: NR 0 (3, 7f00, 1000, 0, 0)
          victim      10 [000] 5.000001000: sched:sched_switch: prev_comm=victim prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=other next_pid=11 next_prio=120 next_tgid=11 prev_syscall=0
           other      11 [000] 5.000005000: irq:softirq_entry: vec=3 [action=NET_RX]
           other      11 [000] 5.000006000: sched:sched_waking: comm=victim pid=10 prio=120 target_cpu=000 tgid=10
           other      11 [000] 5.000006500: irq:softirq_exit: vec=3 [action=NET_RX]
           other      11 [000] 5.000007000: sched:sched_switch: prev_comm=other prev_pid=11 prev_prio=120 prev_state=R ==> next_comm=hog next_pid=13 next_prio=120 next_tgid=13
             hog      13 [000] 5.000016000: sched:sched_switch: prev_comm=hog prev_pid=13 prev_prio=120 prev_state=S ==> next_comm=victim next_pid=10 next_prio=120 next_tgid=10
          victim      10 [000] 5.000017000: syscalls:sys_exit_read: NR 0 = 4096
          victim      10 [000] 5.000017000: tailcam:exit: rule=slow-read track=syscall delay_ns=16900 pid=10 tgid=10 comm=victim outlier=0
          victim      10 [000] 5.000020000: sched:sched_switch: prev_comm=victim prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120 next_tgid=0
`

func TestText(t *testing.T) {
	got, r := exported(t, story(t), all(Text, Stdout))
	diff := cmp.Diff(storyText, string(got))
	assert.Check(t, diff == "" && r.Events == 12, "%d events (-want +got):\n%s", r.Events, diff)
}

func TestJSON(t *testing.T) {
	got, _ := exported(t, story(t), all(JSON, Stdout))
	lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	assert.Assert(t, len(lines) == 12, "%d lines", len(lines))
	for i, want := range map[int]string{
		2: `{"time":"2026-11-18T11:06:45.000000100Z","mono_ns":5000000100,"cpu":0,"tid":10,"event":"syscall_entry_read",` +
			`"fields":{"nr":0,"pid":10,"arg0":"0x3","arg1":"0x7f00","arg2":"0x1000","arg3":"0x0","arg4":"0x0"}}`,
		5: `{"time":"2026-11-18T11:06:45.000006000Z","mono_ns":5000006000,"cpu":0,"tid":11,"event":"sched_waking",` +
			`"fields":{"comm":"victim","tid":10,"pid":10,"prio":120,"target_cpu":0}}`,
	} {
		assert.Check(t, lines[i] == want, "line %d:\n got %s\nwant %s", i, lines[i], want)
	}
}

// Every type of event comes out of every format, with its name.
func TestEveryType(t *testing.T) {
	r := newRecords(1, bootNS)
	r.everyType()
	known := &trace.Known{Tasks: []trace.KnownTask{{TID: 7, PID: 7, Comm: "init"}}, Devices: []trace.DeviceState{{Dev: 254 << 20, Name: "vda"}}}
	dir := writeSnapshot(t, trace.Trace{CPUs: []trace.CPU{{CPU: 1, Records: r.out}}, Known: known}, []events.Outlier{{
		Rule: "wakeup", Track: "wakeup", Task: events.Task{TID: 9, PID: 9, Comm: "x"}, StartMono: bootNS, EndMono: bootNS + 50,
	}}, nil)
	reader, err := trace.Read(filepath.Join(dir, "trace"))
	assert.NilError(t, err)
	defer reader.Close()
	var want []string
	markers := 0
	for {
		ev, err := reader.Next()
		if err != nil {
			break
		}
		if want = append(want, eventName(&ev)); ev.Type >= trace.OutlierEntry {
			markers++
		}
		seen := map[string]bool{}
		for _, f := range fields.Append(nil, &ev, nil) {
			if seen[f.Name] {
				t.Errorf("%s has two fields %s", eventName(&ev), f.Name)
			}
			seen[f.Name] = true
		}
		if len(seen) == 0 && ev.Body != nil {
			switch ev.Type {
			case trace.CompactionBegin: // sync, if it is
			default:
				t.Errorf("%s has no fields", eventName(&ev))
			}
		}
	}
	assert.Assert(t, len(want) >= int(trace.Steal)+4, "%d events", len(want))
	out, _ := exported(t, dir, all(JSON, Stdout))
	for i, line := range bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n")) {
		var got struct {
			Event  string
			Fields map[string]any
		}
		err := json.Unmarshal(line, &got)
		assert.Assert(t, err == nil && i < len(want) && got.Event == want[i], "line %d: %v\n%s", i, err, line)
	}
	text, _ := exported(t, dir, all(Text, Stdout))
	n := bytes.Count(text, []byte("\n"))
	assert.Check(t, n == len(want), "%d lines of text, %d events", n, len(want))
	perfetto, res := exported(t, dir, all(Perfetto, Stdout))
	p := decode(t, perfetto)
	n = len(want) - markers + int(res.Inserted)
	assert.Check(t, p.ftrace == n, "%d ftrace decoded, want %d", p.ftrace, n)
}

func TestSpan(t *testing.T) {
	dir := story(t)
	o := all(JSON, Stdout)
	o.Before, o.After = 0, 0
	out, r := exported(t, dir, o)
	assert.Check(t, r.Events == 10 && bytes.Count(out, []byte("\n")) == 10,
		"%d events in the outlier, want 10", r.Events)
	o.Before, o.After = -1, 2000
	_, r = exported(t, dir, o)
	assert.Check(t, r.Events == 11, "%d events up to 2 µs after, want 11", r.Events)
	o = all(CTF, filepath.Join(t.TempDir(), "ctf"))
	o.Before = time.Microsecond
	o.After = 0
	_, r = exported(t, dir, o)
	assert.Check(t, r.Events == 11, "%d events copied, want 11", r.Events)
	if r, err := trace.Read(o.Out); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
}

var atByte = regexp.MustCompile(`at byte \d+`)

// What goes wrong is told, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	dir := story(t)
	tmp := t.TempDir()
	there := filepath.Join(tmp, "there")
	full := filepath.Join(tmp, "full")
	torn := story(t)
	stream := filepath.Join(torn, "trace", "kernel", "kernel_0")
	data, _ := os.ReadFile(stream)
	for _, err := range []error{
		os.WriteFile(there, []byte("mine"), 0o600), os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "thesis"), nil, 0o600),
		os.WriteFile(stream, data[:len(data)-10], 0o600),
	} {
		assert.NilError(t, err)
	}
	noOutlier := writeSnapshot(t, trace.Trace{CPUs: []trace.CPU{{}}}, nil, nil)
	for _, c := range []struct {
		dir   string
		f     Format
		out   string
		force bool
		want  string
	}{
		{filepath.Join(tmp, "none"), JSON, Stdout, false, "read snapshot: stat " + tmp + "/none: no such file or directory"},
		{there, JSON, Stdout, false, there + " is not a snapshot directory"},
		{tmp, JSON, Stdout, false, tmp + " is not a snapshot directory: it has no snapshot.json"},
		{filepath.Join(dir, "trace"), JSON, Stdout, false, dir + "/trace is a trace directory: specify the snapshot's, " + dir},
		{dir, JSON, there, false, there + " exists: specify another, or replace it with --force"},
		{dir, JSON, full, true, full + " is a directory: specify a file"},
		{dir, CTF, Stdout, false, "a CTF trace is a directory: specify one that does not exist"},
		{dir, CTF, full, false, full + " exists: specify another, or replace it with --force"},
		{dir, CTF, full, true, "will not replace " + full + ": " + full + "/thesis is not part of a trace; specify another directory"},
		{dir, CTF, there, true, "will not replace " + there + ": " + there + " is not part of a trace; specify another directory"},
		{noOutlier, SVG, Stdout, false, "this snapshot has no outliers: use --time oncpu or --time offcpu"},
		{torn, JSON, filepath.Join(tmp, "new"), false, "read trace of CPU 0 at byte N: damaged trace: unexpected EOF in an event"},
		{torn, CTF, filepath.Join(tmp, "new"), false, "copy trace of CPU 0: at byte N: damaged trace: unexpected EOF in an event"},
	} {
		var out bytes.Buffer
		o := all(c.f, c.out)
		o.Force = c.force
		_, err := Run(context.Background(), c.dir, &out, o)
		assert.Check(t, err != nil && atByte.ReplaceAllString(err.Error(), "at byte N") == c.want,
			"%s to %s: %v\nwant %s", c.f, c.out, err, c.want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, f := range Formats {
		if f == Folded || f == SVG {
			continue // of outliers: nothing to wait for
		}
		_, err := Run(ctx, dir, nil, all(f, filepath.Join(tmp, "new")))
		assert.Check(t, is.ErrorIs(err, context.Canceled), "%s: interrupted", f)
	}
	entries, _ := os.ReadDir(tmp)
	got, _ := os.ReadFile(there)
	assert.Check(t, len(entries) == 2 && string(got) == "mine", "left behind: %v, %q", entries, got)
}

func TestForceAndDamage(t *testing.T) {
	dir := story(t)
	tmp := t.TempDir()
	for _, f := range Formats {
		o := all(f, filepath.Join(tmp, string(f)))
		for i := range 2 {
			o.Force = i == 1
			_, err := Run(context.Background(), dir, nil, o)
			assert.Check(t, err, "%s", f)
		}
	}
	entries, _ := os.ReadDir(tmp)
	assert.Check(t, len(entries) == len(Formats), "left behind: %v", entries)
	assert.NilError(t, os.Truncate(filepath.Join(dir, "trace", "kernel", "kernel_0"), 600))
	o := all(JSON, Stdout)
	o.KeepGoing = true
	out, r := exported(t, dir, o)
	assert.Check(t, len(r.Damage) == 1 && errors.Is(r.Damage[0], trace.ErrDamaged) && r.Events != 0 &&
		bytes.Count(out, []byte("\n")) == int(r.Events), "%d decoded, damage %v", r.Events, r.Damage)
}

// The trace's names are those of programs, which may be anything.
func TestHostileNames(t *testing.T) {
	r := newRecords(0, bootNS)
	r.swtch(1, "a\x1b[2J\"\\\n;<b", 0, 2, "\xff\xfe\u202e]]>")
	r.now += 1000
	r.swtch(2, "\xff\xfe\u202e]]>", 0, 1, "a\x1b[2J\"\\\n;<b")
	dir := writeSnapshot(t, trace.Trace{CPUs: []trace.CPU{{Records: r.out}}}, nil, nil)
	out, _ := exported(t, dir, all(JSON, Stdout))
	for line := range bytes.Lines(out) {
		assert.Check(t, json.Valid(line), "no JSON: %s", line)
	}
	for _, f := range []Format{Text, Folded, SVG} {
		o := all(f, Stdout)
		o.Time = "oncpu"
		out, _ := exported(t, dir, o)
		assert.Check(t, bytes.IndexByte(out, 0x1b) < 0 && bytes.IndexByte(out, 0xff) < 0 &&
			!bytes.ContainsRune(out, '\u202e'), "%s lets control characters pass: %q", f, out)
	}
	out, _ = exported(t, dir, all(Perfetto, Stdout))
	p := decode(t, out)
	assert.Check(t, p.ftrace == 2, "%d ftrace events", p.ftrace)
}
