package guest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/rules"
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
		rules.Rule{Name: "run", Track: rules.Workqueue, Threshold: time.Nanosecond, Timeout: time.Second, When: runs, Stacks: []rules.Stack{rules.KernelStack}},
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
		if err := os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		return from, linux.Monotonic()
	}
	queue() // its function is judged once
	await(t, outliers, "run", 0)
	agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
		drop(outliers)
		hogged := make(chan [2]uint64)
		go func() {
			start, end := hog(t, cpu, busy)
			hogged <- [2]uint64{start, end}
		}()
		time.Sleep(busy / 8)
		from, to := queue()
		hog := <-hogged
		if from < hog[0] || hog[1] < from+uint64(busy/2) {
			t.Logf("hogged from %d to %d, queued at %d", hog[0], hog[1], from)
			return nil, 0, 0
		}
		o := await(t, outliers, "stuck", 0)
		if o.Cause != events.CauseTimeout || o.Task.TID != 0 || o.EndMono > to || o.Work.Phase != "wait" {
			t.Errorf("%s after %v by %+v, %+v", o.Cause, time.Duration(o.DelayNS), o.Task, o.Work)
		}
		o = await(t, outliers, "wait", 0)
		if !strings.HasPrefix(o.Task.Comm, "kworker/") || o.Work.QueuedBy == nil || o.Work.QueuedBy.PID != os.Getpid() || o.StartMono < from {
			t.Errorf("%+v by %+v, queued by %+v", o.Work, o.Task, o.Work.QueuedBy)
		}
		run := await(t, outliers, "run", o.Task.TID)
		if run.Work.WaitNS == nil || *run.Work.WaitNS != o.DelayNS || run.Work.Queue != "events" || run.Work.Phase != "run" {
			t.Errorf("the run: %+v by %+v, after %v", run.Work, run.Task, time.Duration(o.DelayNS))
		}
		return o, time.Duration(hog[1]-from) - slack, time.Duration(to - from)
	})
	counters, err := kernel.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c := counters.Trackers[rules.Workqueue]; c.Seen == 0 || c.TableFull > 0 {
		t.Errorf("%+v", c)
	}
}
