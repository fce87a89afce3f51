package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/export"
	"github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/schema"
)

// patience bounds how long a test waits for something that always comes.
const patience = 30 * time.Second

func TestDemo(t *testing.T) {
	d := startDemo(t)
	results := d.results(4)
	assert.NilError(t, d.cmd.Wait(), "%s", d.stderr)
	d.checkGone()
	got := names(t, d.snapshots)
	assert.Assert(t, len(got) == 1, "the demo left %v in its directory", got)
	for i, track := range []string{"wakeup", "offcpu", "syscall", "block"} {
		r := results[i]
		t.Run(track, func(t *testing.T) {
			assert.Assert(t, r.Track == track && r.Error == "" && r.ReportedNS != nil && r.Snapshot != nil &&
				r.Outlier != nil, "result: %+v", r)
			// How near they are is the demo's own judgement.
			assert.Check(t, *r.ReportedNS == r.Outlier.DelayNS && r.InjectedNS == r.Injected.Delay().Nanoseconds(),
				"numbers do not agree: %+v", r)
			assert.Check(t, r.Outlier.Task.TID == r.Injected.TID && r.Outlier.Task.PID == r.Injected.PID &&
				r.Outlier.Task.Comm == r.Injected.Comm,
				"reported of %+v, injected into %+v", r.Outlier.Task, r.Injected)
			checkOutlier(t, &r)
			checkSnapshot(t, &r)
		})
	}
}

// checkOutlier checks what is particular to a track.
func checkOutlier(t *testing.T, r *Result) {
	t.Helper()
	o := r.Outlier
	switch r.Track {
	case "wakeup":
		assert.Check(t, o.OnCPU != nil && o.OnCPU.Comm == inject.CommHog,
			"ran instead: %+v, want %s", o.OnCPU, inject.CommHog)
	case "offcpu":
		assert.Check(t, o.State == "uninterruptible", "state %q, want uninterruptible", o.State)
		assert.Check(t, len(o.Stacks.Kernel) != 0, "no kernel stack")
	case "syscall":
		assert.Check(t, o.Syscall != nil && o.Syscall.Name == "pread64" && o.Syscall.Ret != nil &&
			*o.Syscall.Ret == 4096, "system call: %+v, want pread64 that returned 4096", o.Syscall)
		assert.Check(t, strings.Contains(strings.Join(o.Stacks.User, "\n"), "internal/inject.reader"),
			"user stack lacks the injector: %q", o.Stacks.User)
	case "block":
		assert.Check(t, o.Block != nil && o.Block.Device == r.Injected.Device && o.Block.Op == "read" &&
			o.Block.Bytes == 4096, "request: %+v, want a read of 4096 bytes on %s", o.Block, r.Injected.Device)
	}
}

// checkSnapshot reads the snapshot with a reader that is not ours.
func checkSnapshot(t *testing.T, r *Result) {
	t.Helper()
	m, err := snapshot.ReadMeta(*r.Snapshot)
	assert.NilError(t, err)
	assert.Check(t, m.Rule != "" && r.Events != 0, "snapshot of rule %q with %d events", m.Rule, r.Events)
	path, err := exec.LookPath("babeltrace2")
	if err != nil {
		t.Skip("babeltrace2 is not installed: the trace is read by tailcam only")
	}
	plain := filepath.Join(t.TempDir(), "trace")
	_, err = export.Run(t.Context(), *r.Snapshot, nil, &export.Options{Format: export.CTF, Out: plain})
	assert.NilError(t, err)
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(path, plain)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	assert.Assert(t, err == nil && stderr.Len() == 0, "babeltrace2: %v\n%s", err, &stderr)
	tid := r.Outlier.Task.TID
	wanted := map[string]string{
		" tailcam_entry: ": fmt.Sprintf("{ tid = %d }", tid),
		" tailcam_exit: ":  fmt.Sprintf("{ tid = %d }", tid),
	}
	switch r.Track {
	case "wakeup":
		wanted[" sched_waking: "] = fmt.Sprintf(" tid = %d,", tid)
		wanted[" sched_switch: "] = fmt.Sprintf("next_tid = %d,", tid)
	case "offcpu":
		wanted[" sched_switch: "] = fmt.Sprintf("prev_tid = %d,", tid)
	case "block":
		sector := fmt.Sprintf("sector = %d,", r.Outlier.Block.Sector)
		wanted[" block_rq_issue: "], wanted[" block_rq_complete: "] = sector, sector
	}
	for event, detail := range wanted {
		assert.Check(t, slices.ContainsFunc(strings.Split(stdout.String(), "\n"), func(line string) bool {
			return strings.Contains(line, event) && strings.Contains(line, detail)
		}), "the trace has no%swith %q", event, detail)
	}
}

func TestInterruptedAtTheStart(t *testing.T) {
	d := startDemo(t)
	d.seeDisk()
	d.end(syscall.SIGTERM)
	assert.Check(t, strings.Contains(d.stderr.String(), "interrupted"),
		"it does not say that it was interrupted:\n%s", d.stderr)
	got := names(t, d.snapshots)
	assert.Check(t, len(got) == 0, "it left %v", got)
}

func TestInterruptedInTheMiddle(t *testing.T) {
	d := startDemo(t)
	d.seeDisk()
	first := d.results(1)[0]
	d.end(syscall.SIGINT)
	assert.Check(t, strings.Contains(d.stderr.String(), "interrupted"),
		"it does not say that it was interrupted:\n%s", d.stderr)
	_, err := snapshot.ReadMeta(*first.Snapshot)
	assert.Check(t, err, "the snapshot that was told is gone")
	half, _ := filepath.Glob(filepath.Join(filepath.Dir(*first.Snapshot), ".tmp-*"))
	assert.Check(t, len(half) == 0, "it left half a snapshot: %v", half)
}

func TestKilledInTheMiddle(t *testing.T) {
	d := startDemo(t)
	d.seeDisk()
	d.results(1)
	d.end(syscall.SIGKILL)
}

// process is a demo under test, in JSON.
type process struct {
	t         *testing.T
	cmd       *exec.Cmd
	out       *bufio.Reader
	stderr    *bytes.Buffer
	snapshots string
	temp      string
	children  []int
	loop, seq string // its loop device, once seen
}

func startDemo(t *testing.T) *process {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: BPF, real-time threads, mounts and loop devices")
	}
	d := &process{t: t, stderr: &bytes.Buffer{}, snapshots: t.TempDir(), temp: t.TempDir()}
	d.cmd = exec.Command(binary(t), "demo", "-o", "json", "--snapshots-dir", d.snapshots)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.temp)
	d.cmd.Stderr = d.stderr
	out, err := d.cmd.StdoutPipe()
	assert.NilError(t, err)
	d.out = bufio.NewReader(out)
	assert.NilError(t, d.cmd.Start())
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // a test that failed has not waited for it
		_ = d.cmd.Wait()
	})
	return d
}

// binary builds tailcam once for each test that wants it; Go's cache makes it cheap.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tailcam")
	cmd := exec.Command("go", "build", "-o", path, "github.com/tailcam/tailcam/cmd/tailcam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return path
}

// results reads so many lines; more are an error if all four are asked for.
func (d *process) results(n int) []Result {
	d.t.Helper()
	var got []Result
	for range n {
		line, err := d.out.ReadBytes('\n')
		assert.NilError(d.t, err, "after %d results: %v\n%s", len(got), err, d.stderr)
		var r Result
		assert.NilError(d.t, json.Unmarshal(line, &r), "in %s", line)
		_, err = schema.Check("../../configs/schemas", line)
		assert.Check(d.t, err)
		assert.Assert(d.t, r.Snapshot != nil, "not caught: %s", line)
		got = append(got, r)
	}
	if n == 4 {
		rest, err := io.ReadAll(d.out)
		assert.Check(d.t, err == nil && len(rest) == 0, "after the last result: %q, %v", rest, err)
	}
	return got
}

// seeDisk waits until the demo's loop device is there.
func (d *process) seeDisk() {
	d.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		d.children = childrenOf(d.cmd.Process.Pid)
		for _, pid := range d.children {
			links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			for _, link := range links {
				dev, _ := os.Readlink(link)
				if name, ok := strings.CutPrefix(dev, "/dev/loop"); ok && name != "-control" && backed("loop"+name) {
					d.loop = "loop" + name
					d.seq = diskSeq(d.loop)
					return
				}
			}
		}
	}
	d.t.Fatalf("no loop device appeared\n%s", d.stderr)
}

// end sends a signal and checks that nothing stays.
func (d *process) end(sig syscall.Signal) {
	d.t.Helper()
	assert.NilError(d.t, d.cmd.Process.Signal(sig))
	_, err := io.Copy(io.Discard, d.out)
	assert.Check(d.t, err)
	var exit *exec.ExitError
	err = d.cmd.Wait()
	assert.Assert(d.t, errors.As(err, &exit), "it ended with %v, want a failure", err)
	code := exit.ExitCode()
	assert.Check(d.t, sig == syscall.SIGKILL || code == 1, "exit status %d, want 1\n%s", code, d.stderr)
	d.checkGone()
}

// checkGone waits until the children and the disk are gone: after SIGKILL the
// kernel does that by itself, and takes its time.
func (d *process) checkGone() {
	d.t.Helper()
	left := func() string {
		for _, pid := range d.children {
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.HasPrefix(string(comm), "tailcam") {
				return fmt.Sprintf("process %d %s", pid, comm)
			}
		}
		if d.loop != "" && backed(d.loop) && diskSeq(d.loop) == d.seq {
			return "loop device " + d.loop
		}
		return ""
	}
	for deadline := time.Now().Add(patience); left() != "" && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	what := left()
	assert.Check(d.t, what == "", "it left a %s", what)
	mounts, err := os.ReadFile("/proc/self/mounts")
	assert.Check(d.t, err == nil && !bytes.Contains(mounts, []byte("tailcam-slowfs")),
		"it left a mount here (%v):\n%s", err, mounts)
	got := names(d.t, d.temp)
	assert.Check(d.t, len(got) == 0, "it left %v in the temporary directory", got)
}

func backed(loop string) bool {
	_, err := os.Stat("/sys/block/" + loop + "/loop/backing_file")
	return err == nil
}

// diskSeq tells apart what is in a device one after the other; empty before 5.15.
func diskSeq(disk string) string {
	seq, _ := os.ReadFile("/sys/block/" + disk + "/diskseq")
	return string(seq)
}

func childrenOf(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var got []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone
		}
		// The name in parentheses may hold anything; the state and the parent follow.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				got = append(got, pid)
			}
		}
	}
	return got
}
