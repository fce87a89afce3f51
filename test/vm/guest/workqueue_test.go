package guest

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestWorkqueue queues work on each CPU while a real-time task keeps one from
// its workers: the work waits there as long as that does, is reported while it
// waits and when a worker has taken it, and then runs.
func TestWorkqueue(t *testing.T) {
	inGuest(t)
	const cpu, busy = 1, 400 * time.Millisecond
	const refresh = "refresh_vm_stats" // what stat_refresh queues, on the queue events of each CPU
	waits := rules.Match{Phase: []rules.Phase{rules.Wait}, Function: []string{refresh}, Queue: []string{"event?"}}
	waited := waits
	waited.CPU = []uint32{cpu}
	runs := waited
	runs.Phase = []rules.Phase{rules.Run}
	names := symbols.New(nil)
	kernel, outliers := watch(t, append(everyRule(),
		rules.Rule{Name: "stuck", Track: rules.Workqueue, Timeout: busy / 8, When: waits},
		rules.Rule{Name: "wait", Track: rules.Workqueue, Threshold: busy / 8, When: waited, Histogram: &rules.Histogram{}},
		rules.Rule{Name: "run", Track: rules.Workqueue, Threshold: time.Nanosecond, Timeout: time.Hour, When: runs, Stacks: []rules.Stack{rules.KernelStack}},
	), &tracker.Options{Groups: tracker.Groups, Ring: 64 << 10, TrackSelf: true, Tasks: 4096, Symbol: func(address uint64) string {
		named, err := names.KernelNames([]uint64{address})
		if err != nil || len(named) != 1 {
			return ""
		}
		return named[0][:strings.IndexAny(named[0]+"+", "+ ")]
	}})
	keepTimers(t)
	queue := func() (from, to uint64) {
		from = linux.Monotonic()
		assert.NilError(t, os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0))
		return from, linux.Monotonic()
	}
	queue() // its function is judged once
	await(t, outliers, "run", 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	assert.NilError(t, cpus.Keep(0)) // where the hog is not
	agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
		drop(outliers)
		hogged := cpus.Hog(t, cpu, 50, busy)
		from, to := queue()
		took := time.Duration(to - from) // until the work was done on every CPU
		hogged()
		first := gather(t, outliers, from, "run")
		stuck, wait, run := first["stuck"], first["wait"], first["run"]
		if wait == nil || time.Duration(wait.DelayNS) < busy/2 || stuck == nil {
			t.Logf("the worker may have run after less than %v, or nobody had a look meanwhile; all was done after %v", busy/2, took)
			return nil, 0, 0
		}
		assert.Check(t, stuck.Cause == events.CauseTimeout && stuck.Task.TID == 0 && stuck.EndMono <= to &&
			stuck.Work.Phase == "wait", "while it waited: %+v", stuck)
		by := wait.Work.QueuedBy
		assert.Check(t, strings.HasPrefix(wait.Task.Comm, "kworker/") && by != nil && by.PID == os.Getpid(),
			"%+v by %+v, queued by %+v", wait.Work, wait.Task, by)
		assert.Check(t, run.Work.WaitNS != nil && *run.Work.WaitNS == wait.DelayNS &&
			run.Task.TID == wait.Task.TID && run.Work.Queue == "events",
			"the run: %+v by %+v, after %v", run.Work, run.Task, time.Duration(wait.DelayNS))
		return wait, took - busy/4, took
	})
	counters, err := kernel.Counters()
	assert.NilError(t, err)
	c := counters.Trackers[rules.Workqueue]
	assert.Check(t, c.Seen != 0 && c.TableFull <= 0, "%+v", c)
}
