package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// explainInBackground is snapshot.Options.Explain. It explains on a thread of low
// priority, which is raised if there is no answer after explainPatience, or of a high one
// while the process is raised (snapshot.Boost): the
// snapshot waits for it, but no longer than explainLimit. What does not end by then
// is left behind, and nothing is explained until it ends.
func (d *daemon) explainInBackground(events *trace.Reader, m *snapshot.Meta, names func() *snapshot.Names) (*snapshot.Explanation, error) {
	if d.explaining.late() {
		return nil, errors.New("an earlier explanation has not ended")
	}
	type answer struct {
		report *explain.Report
		err    error
	}
	done := make(chan answer, 1)
	thread := make(chan int, 1)
	ordinary := 0 // niceness
	go func() {
		runtime.LockOSThread()
		tid := unix.Gettid()
		if n, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
			ordinary = 20 - n // as getpriority(2) says
		}
		end := d.explaining.begin(tid)
		raised := d.boost.Refresh() // this thread, too
		if !raised {
			nice := niceLow
			if canRaisePriority() {
				nice = niceLowest
			}
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice) // on failure it keeps the daemon's priority
		}
		thread <- tid
		var a answer
		a.err = d.guard.Mapped(guard.Explain, func() (err error) {
			a.report, err = catalog.ExplainEvents(events, m, names, d.kernelFunction)
			return err
		})
		end()
		// Without its niceness, the thread goes on. The next snapshot would wait for a new one,
		// which begins with ordinary priority.
		if raised || unix.Setpriority(unix.PRIO_PROCESS, tid, ordinary) == nil {
			runtime.UnlockOSThread()
		}
		done <- a
	}()
	tid := <-thread
	timer, limit := time.NewTimer(explainPatience), time.NewTimer(explainLimit)
	defer timer.Stop()
	defer limit.Stop()
	for {
		select {
		case a := <-done:
			return explanation(a.report, a.err)
		case <-timer.C:
			d.explaining.setNice(tid, ordinary)
			d.boost.Refresh()
		case <-limit.C:
			d.explaining.setNice(tid, niceLowest)
			return nil, fmt.Errorf("took longer than %s: try \"tailcam explain\"", explainLimit)
		}
	}
}

// explainInline is snapshot.Options.Explain on the calling thread, which the
// caller guards.
func (d *daemon) explainInline(events *trace.Reader, m *snapshot.Meta, names func() *snapshot.Names) (*snapshot.Explanation, error) {
	defer d.explaining.begin(unix.Gettid())()
	return explanation(catalog.ExplainEvents(events, m, names, d.kernelFunction))
}

func explanation(report *explain.Report, err error) (*snapshot.Explanation, error) {
	if err != nil {
		return nil, err
	}
	return catalog.Explanation(report), nil
}

// explainPatience is how long an explanation runs at low priority, and explainLimit how
// long a snapshot waits for it.
const (
	explainPatience = 200 * time.Millisecond
	explainLimit    = time.Minute
)

// Niceness of the thread that explains. At niceLowest it may starve on a busy
// machine, so that is used only if the priority can be raised again.
const (
	niceLowest = 19
	niceLow    = 5
)

// canRaisePriority reports whether a thread may lower its niceness again, with
// CAP_SYS_NICE or within RLIMIT_NICE.
var canRaisePriority = sync.OnceValue(func() bool {
	may := make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine
		tid := unix.Gettid()
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, niceLowest)
		may <- unix.Setpriority(unix.PRIO_PROCESS, tid, 0) == nil
	}()
	return <-may
})
