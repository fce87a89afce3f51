package explainer

import (
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/iothread"
	"github.com/tailcam/tailcam/tracker/events"
)

// Explainer explains for the daemon.
type Explainer struct {
	// Guard keeps a trace that makes the explanation panic from ending the
	// daemon, and counts it; nil: it is not counted.
	Guard *guard.Guard
}

// ForSnapshots is snapshot.Options.Explain: it explains at the lowest priority,
// but where that gets no CPU, as any other task after a while: the snapshot
// waits for it.
func (x *Explainer) ForSnapshots(dir string, m *snapshot.Meta, n *snapshot.Names) (*snapshot.Explanation, error) {
	type answer struct {
		report *explain.Report
		err    error
	}
	done := make(chan answer, 1)
	thread := make(chan int, 1)
	go func() {
		// A thread's niceness cannot always be taken back: it ends with this goroutine.
		runtime.LockOSThread()
		_ = iothread.Detach() // or a disk that hangs now keeps what the daemon has open
		tid := unix.Gettid()
		nice := low
		if mayRise() {
			nice = lowest
		}
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice) // or it explains as fast as the rest
		thread <- tid
		var a answer
		a.err = x.Guard.Mapped(guard.Explain, func() (err error) {
			a.report, err = Trace(dir, m, n)
			return err
		})
		done <- a
	}()
	tid := <-thread
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case a := <-done:
			return forSnapshot(a.report, a.err)
		case <-late.C:
			// The thread is still there: it has not answered.
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 0)
		}
	}
}

// Promptly is the same with the priority of the calling thread.
func (x *Explainer) Promptly(dir string, m *snapshot.Meta, n *snapshot.Names) (*snapshot.Explanation, error) {
	return forSnapshot(Trace(dir, m, n)) // its caller guards this goroutine
}

func forSnapshot(report *explain.Report, err error) (*snapshot.Explanation, error) {
	if err != nil {
		return nil, err
	}
	e := &snapshot.Explanation{JSON: report, Notes: report.Notes}
	for i := range report.Outliers {
		r := &report.Outliers[i]
		var text strings.Builder
		r.WriteText(&text)
		e.Outliers = append(e.Outliers, snapshot.ExplainedOutlier{Explained: Explained(r), Text: text.String()})
	}
	return e, nil
}

// patience is how long the lowest priority is tried.
const patience = 200 * time.Millisecond

// Nicenesses to explain at. At the lowest it gets next to nothing where others
// want all, so that it must be able to rise again.
const (
	lowest = 19
	low    = 5
)

// mayRise tells whether a thread's niceness can be taken back: with
// CAP_SYS_NICE, or within RLIMIT_NICE.
var mayRise = sync.OnceValue(func() bool {
	may := make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine
		tid := unix.Gettid()
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, lowest)
		may <- unix.Setpriority(unix.PRIO_PROCESS, tid, 0) == nil
	}()
	return <-may
})

// Explained is what an outlier carries of its explanation.
func Explained(r *explain.Result) *events.Explained {
	e := &events.Explained{Verdict: r.Verdict, Advice: r.Advice, Cause: string(r.Blame.Cause), NS: r.Blame.NS}
	if r.Blame.By != nil {
		e.By = r.Blame.By.Name
	}
	return e
}
