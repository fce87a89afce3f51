package explainer

import (
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker"
)

// ForSnapshots is snapshot.Options.Explain: it explains at the lowest priority.
func ForSnapshots(dir string, m *snapshot.Meta, n *snapshot.Names) (*snapshot.Explanation, error) {
	type answer struct {
		report *explain.Report
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		// A thread's niceness cannot be taken back: it ends with this goroutine.
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowest) // then it explains as fast as the rest
		r, err := Trace(dir, m, n)
		done <- answer{r, err}
	}()
	a := <-done
	if a.err != nil {
		return nil, a.err
	}
	e := &snapshot.Explanation{JSON: a.report, Notes: a.report.Notes}
	for i := range a.report.Outliers {
		r := &a.report.Outliers[i]
		var text strings.Builder
		r.WriteText(&text)
		e.Outliers = append(e.Outliers, snapshot.ExplainedOutlier{Explained: Explained(r), Text: text.String()})
	}
	return e, nil
}

const lowest = 19 // nice

// Explained is what an outlier carries of its explanation.
func Explained(r *explain.Result) *tracker.Explained {
	e := &tracker.Explained{Verdict: r.Verdict, Advice: r.Advice, Cause: string(r.Blame.Cause), NS: r.Blame.NS}
	if r.Blame.By != nil {
		e.By = r.Blame.By.Name
	}
	return e
}
