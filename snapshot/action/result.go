package action

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tailcam/tailcam/internal/text"
	"github.com/tailcam/tailcam/tracker/events"
)

// Result is the result of one action.
type Result struct {
	Rule     string // of the outlier
	Outlier  string // its id
	ID       string // of the snapshot, or ""
	Index    int    // in the job, as in action-N.log
	Run      []string
	Time     time.Time // of the start
	NotRun   string    // why it did not run although it was due; "": it did
	Limited  bool      // of those: by the action's limit
	Started  bool
	Status   int            // exit status; -1 if killed by a signal or not started
	Signal   syscall.Signal // that killed it, or 0
	TimedOut bool
	Over     string // the limit for which it was killed: CPU time, memory; or ""
	Stopped  bool   // killed because the daemon stops
	Took     time.Duration
	CPU      time.Duration // of everything that it started; 0 without a supervisor
	Dropped  int64         // bytes of output beyond the limit
	kept     int64         // and within it
	Output   string        // only without a snapshot, which has it as a file
	Err      error         // why it did not start, or another error
}

func newResult(j *Job, index int) Result {
	it := &j.Items[index]
	return Result{Rule: it.Outlier.Rule, Outlier: it.Outlier.ID, ID: j.ID, Index: index, Run: it.Action.Run, Status: -1}
}

// OK reports whether the action exited with status 0.
func (r *Result) OK() bool {
	return r.Started && r.Status == 0 && !r.TimedOut && !r.Stopped && r.Over == ""
}

// String describes how the action ended.
func (r *Result) String() string {
	s := r.text()
	if r.Err != nil && r.Started {
		s += fmt.Sprintf(" (%v)", r.Err)
	}
	return s
}

// text is String without details of errors but why it did not start.
func (r *Result) text() string {
	s := ""
	switch {
	case r.NotRun != "":
		return "not run: " + r.NotRun
	case !r.Started:
		return fmt.Sprintf("did not start: %v", r.Err)
	case r.Signal != 0:
		s = fmt.Sprintf("killed by signal %d (%s)", int(r.Signal), r.Signal)
	case r.Status < 0:
		s = "did not end"
	default:
		s = fmt.Sprintf("exit status %d", r.Status)
	}
	switch {
	case r.TimedOut:
		s += ", over its time limit"
	case r.Over != "":
		s += ", over its limit of " + r.Over
	case r.Stopped:
		s += ", because tailcam was stopped"
	}
	return s
}

// Short returns the result as in status and in the snapshot. It has no arguments of the
// action and nothing that it printed, which may be secret.
func (r *Result) Short() events.ActionResult {
	s := events.ActionResult{
		Time: r.Time.UTC(), Rule: r.Rule, Index: r.Index, Result: r.word(), Text: r.text(),
		TookNS: r.Took.Nanoseconds(), CPUNS: r.CPU.Nanoseconds(), DroppedBytes: r.Dropped,
	}
	if len(r.Run) > 0 {
		s.Program = r.Run[0]
	}
	if r.ID != "" {
		s.Snapshot = &r.ID
	}
	return s
}

// word is the result label of metrics.
func (r *Result) word() string {
	switch {
	case r.Limited:
		return "limited"
	case r.NotRun != "":
		return "not_run"
	case r.OK():
		return "succeeded"
	case r.TimedOut:
		return "timed_out"
	case r.Over != "":
		return "over_limit"
	}
	return "failed"
}

// ResultsFile has the results of a snapshot's actions.
const ResultsFile = "actions.json"

// writeResults writes actions.json into a snapshot, in place of whatever is there.
func writeResults(dir string, list []Result) error {
	if dir == "" || len(list) == 0 {
		return nil
	}
	all := struct {
		Version int                   `json:"version"`
		Actions []events.ActionResult `json:"actions"`
	}{Version: 1}
	for i := range list {
		all.Actions = append(all.Actions, list[i].Short())
	}
	data, err := text.Marshal(&all)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "actions.*.json") // O_EXCL, mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Chmod(0o640), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, ResultsFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
