package action

import (
	"fmt"
	"syscall"
	"time"
)

// Result is the result of one action.
type Result struct {
	Rule     string
	ID       string // of the snapshot, or ""
	Index    int    // in the job, as in action-N.log
	Run      []string
	Started  bool
	Status   int            // exit status; -1 if killed by a signal or not started
	Signal   syscall.Signal // that killed it, or 0
	TimedOut bool
	Stopped  bool // killed because the daemon stops
	Took     time.Duration
	Dropped  int64  // bytes of output beyond the limit
	Output   string // only without a snapshot, which has it as a file
	Err      error  // why it did not start, or another error
}

// OK reports whether the action exited with status 0.
func (r *Result) OK() bool {
	return r.Started && r.Status == 0 && !r.TimedOut && !r.Stopped
}

// String describes how the action ended.
func (r *Result) String() string {
	s := ""
	switch {
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
	case r.Stopped:
		s += ", because tailcam was stopped"
	}
	if r.Err != nil {
		s += fmt.Sprintf(" (%v)", r.Err)
	}
	return s
}
