// Package explain tells where the time of an outlier went: which parts it has,
// which tasks, interrupts and devices it waited for, and who is to blame. It
// reads nothing but a trace, so it needs neither root nor the daemon, and takes
// any trace: what cannot be explained is said to be unexplained.
//
// The rules that it follows are written down in docs/explain.md.
package explain

import (
	"errors"
	"fmt"
	"io"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Source hands out events in the order of time, then io.EOF. An error that
// wraps trace.ErrDamaged is noted, and reading goes on.
type Source interface {
	Next() (trace.Event, error)
}

// Outlier is what is to be explained. Times are nanoseconds of CLOCK_MONOTONIC.
type Outlier struct {
	Rule, Track, Cause string
	Start, End         uint64
	TID, PID           int
	Comm               string
	CPU                int    // where it ended
	Syscall            string // that the task was in all the time; "": not known
	IRQ                int    // tracks irq: its number
	Vector             string // track softirq: of the kernel's names
	Raised             bool   // track softirq: from raise to run
}

// TaskFact is what is known of a task beside the trace.
type TaskFact struct {
	PID            int
	Comm           string
	Cgroup         string
	Policy         string // SCHED_FIFO and so on
	RTPriority     int
	Kernel         bool
	CPUs           []int // that it may run on; nil: not known
	AffinityIsHard bool  // fewer than the machine has
}

// Names resolve what a trace has as numbers. Each may be nil; an answer may be
// empty.
type Names struct {
	Syscall  func(nr int) string
	Function func(address uint64) string
	Device   func(dev uint32) string
	Task     func(tid int) (TaskFact, bool)
}

// Limits of what is kept of a trace.
const (
	maxSegments = 8 << 20
	maxDepth    = 12
	maxSteps    = 20_000
)

// Explain reads the source up to the end of the last outlier and explains
// each. Its memory is bounded by the events between the first outlier's start
// and the last one's end. It is safe for concurrent use with other sources.
func Explain(src Source, outliers []Outlier, names Names) (*Report, error) {
	r := &Report{Version: Version, Outliers: []Result{}}
	if len(outliers) == 0 {
		return r, nil
	}
	m := newModel(outliers, names)
	for {
		ev, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, trace.ErrDamaged) {
			if len(r.Notes) < 16 {
				r.Notes = append(r.Notes, err.Error())
			}
			m.damaged = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("explain: %w", err)
		}
		if ev.Time > m.to {
			break
		}
		m.feed(&ev)
	}
	m.finish()
	for i := range outliers {
		r.Outliers = append(r.Outliers, m.explain(&outliers[i]))
	}
	return r, nil
}
