package daemon

import (
	"flag"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

// standstill is how long the daemon stands still: go test ./test/e2e/daemon -run TestFreeze -standstill 10s.
var standstill = flag.Duration("standstill", 5*time.Second, "how long TestFreeze stops the daemon")

// TestFreeze: the daemon stands still while an outlier happens and for five
// seconds of heavy load after it. What was before the outlier is still there.
func TestFreeze(t *testing.T) {
	needRoot(t)
	needTool(t, "hackbench", "rt-tests")
	for _, backend := range []string{"mmap", "perf"} {
		t.Run(backend, func(t *testing.T) { freeze(t, backend) })
	}
}

func freeze(t *testing.T, backend string) {
	uid := newUID()
	d := start(t, rulesFile(entry("late", "wakeup", "10ms", "{uid: "+strconv.Itoa(uid)+", comm: inj-wakeup}",
		"stacks: [kernel, waker]", "snapshot: {after: 20ms, every: 10ms}")), "--recorder-size", "2MiB", "--recorder-backend", backend)

	for try := range 10 { // the injector says of up to half of them that it was disturbed
		time.Sleep(time.Second) // history to keep
		eventually(t, "the daemon knows how fast history grows", func() bool {
			cpus := d.status().Recorder.CPUs
			return len(cpus) > 0 && !slices.ContainsFunc(cpus, func(c snapshot.Coverage) bool { return c.EventsPerSecond == 0 })
		})
		ran := linux.Monotonic()
		landmark := runTrue(t)
		before := recorded(d)
		d.pause()
		truth := provoke(t, uid, "wakeup", "1", "30000", "0", "1", "1")[0]
		stop := load(t)
		time.Sleep(*standstill)
		stop()
		d.resume()
		if truth.Kind != inject.Over {
			t.Logf("try %d: the injector was disturbed: %+v", try, truth)
			continue
		}
		m, o, events := frozen(t, d, truth)
		checkFrozen(t, m, o, events, truth)
		if slices.ContainsFunc(m.Coverage, func(c snapshot.CPUCoverage) bool { return c.FromMonoNS > ran }) {
			t.Logf("try %d: the machine does so much that the rings held no more of the process before: %+v", try, m.Coverage)
			continue
		}
		knows(t, events, landmark, o.StartMono)
		after := recorded(d)
		ring := uint64(2<<20) / 64 // records, at most
		for cpu := range after {
			assert.Check(t, after[cpu]-before[cpu] >= ring,
				"CPU %d: %d records under load do not prove that %d would have been overwritten", cpu, after[cpu]-before[cpu], ring)
		}
		short, whole := 32, 64 // bytes of a switch, two of which share a place, and of other events
		if backend == "perf" {
			short, whole = 48, 80
		}
		for _, c := range d.status().Recorder.CPUs {
			assert.Check(t, c.BytesPerEvent >= short && c.BytesPerEvent < whole, "under a load of switches: %+v", c)
		}
		return
	}
	t.Fatal("the injector was disturbed each time, or what came before it was overwritten by then")
}

// runTrue runs a process and returns its id.
func runTrue(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	assert.NilError(t, cmd.Run())
	return cmd.Process.Pid
}

// recorded is how many records each CPU has written.
func recorded(d *running) map[int]uint64 {
	d.t.Helper()
	n := map[int]uint64{}
	for _, c := range d.status().Recorder.CPUs {
		n[c.CPU] = c.Records
	}
	return n
}

// frozen waits for the snapshot of the outlier: it ended when the injector says so.
func frozen(t *testing.T, d *running, truth inject.Event) (m *snapshot.Meta, o *events.Outlier, trace []event) {
	t.Helper()
	var dir string
	var at int
	eventually(t, "the outlier's snapshot is there", func() bool {
		for _, s := range d.list() {
			at = slices.IndexFunc(readMeta(t, s.Dir).Outliers, func(o events.Outlier) bool {
				return o.Task.TID == truth.TID && o.EndMono > truth.Start && o.EndMono <= truth.End
			})
			if at >= 0 {
				dir = s.Dir
				return true
			}
		}
		return false
	})
	m, trace = checkSnapshot(t, dir)
	return m, &m.Outliers[at], trace
}

// checkFrozen holds the snapshot against the injector's own account.
func checkFrozen(t *testing.T, m *snapshot.Meta, o *events.Outlier, events []event, truth inject.Event) {
	t.Helper()
	assert.Check(t, o.Task.PID == truth.PID && o.Task.TID == truth.TID && o.Task.Comm == truth.Comm,
		"the outlier is of %+v, injected was %+v", o.Task, truth)
	// The timer fires after it is due; the victim looks at the clock after it runs.
	assert.Check(t, o.StartMono >= truth.Start && o.EndMono <= truth.End && o.DelayNS >= truth.Delay().Nanoseconds()/2,
		"from %d to %d, injected was %d to %d", o.StartMono, o.EndMono, truth.Start, truth.End)
	assert.Check(t, find(events, "sched_waking", o.StartMono, func(e *event) bool {
		return e.number("tid") == truth.TID && e.number("pid") == truth.PID
	}) != nil, "the sched_waking of task %d at %d is missing", truth.TID, o.StartMono)
	assert.Check(t, find(events, "sched_switch", o.EndMono, func(e *event) bool {
		return e.number("next_tid") == truth.TID && e.number("next_pid") == truth.PID && e.cpu == o.CPU
	}) != nil, "the sched_switch to task %d at %d is missing", truth.TID, o.EndMono)
	for _, c := range m.Coverage {
		assert.Check(t, c.CompleteBefore, "CPU %d: history is not complete: %+v", c.CPU, c)
		n := unbroken(t, events, c.CPU, c.FromMonoNS, o.EndMono)
		t.Logf("CPU %d: %d switches, unbroken for %v before the entry", c.CPU, n, time.Duration(o.StartMono-min(c.FromMonoNS, o.StartMono)))
	}
}

// knows holds that the whole life of a process before that time is in the trace.
func knows(t *testing.T, events []event, pid int, before uint64) {
	t.Helper()
	seen := map[string]int{}
	for i := range events {
		e := &events[i]
		if e.tid == pid && e.time < before && (e.name == "sched_process_exec" || e.name == "sched_process_exit") {
			seen[e.name]++
		}
	}
	assert.Check(t, seen["sched_process_exec"] == 1 && seen["sched_process_exit"] == 1,
		"of process %d, which came and went before the outlier, the trace has %v", pid, seen)
}
