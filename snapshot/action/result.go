package action

import (
	"fmt"
	"syscall"
	"time"
)

// Result is how one action ended.
type Result struct {
	Rule     string
	ID       string // of the snapshot, or empty
	Index    int    // of the action in its job: action-N.log
	Run      []string
	Started  bool
	Status   int            // exit status; -1 if a signal ended it or it did not start
	Signal   syscall.Signal // that ended it, or 0
	TimedOut bool
	Stopped  bool // killed because the daemon stops
	Took     time.Duration
	Dropped  int64  // bytes of output past the limit
	Output   string // only without a snapshot, which would have it in a file
	Err      error  // why it could not start, or what else went wrong
}

// OK tells whether the action ran and ended with status 0.
func (r *Result) OK() bool {
	return r.Started && r.Status == 0 && !r.TimedOut && !r.Stopped
}

// String says in words how it ended.
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
