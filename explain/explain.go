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

// Source hands out events in the order of time, then io.EOF. After an error
// that wraps trace.ErrDamaged, reading goes on. *trace.Reader is one.
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
	Syscall            string // track syscall: that the task was in all the time; else the one it sleeps in, if known
	Device             string // track block
	Sector             uint64 // track block
	IRQ                int    // track irq: its number
	Name               string // track irq: of the handler; softirq: of the vector, as NET_RX
	Raised             bool   // track softirq: from raise to run
	Stacks             []Stack
}

// Stack is where the slow task was from a time of CLOCK_MONOTONIC on, when it
// left its CPU or became ready, or at the outlier's end; the innermost frame first.
type Stack struct {
	At     uint64
	Frames []string
	Waker  bool // not its own, but of who woke it at that time
}

// TaskInfo is what is known of a task beside the trace.
type TaskInfo struct {
	PID        int
	Comm       string
	Cgroup     string
	Policy     string // SCHED_FIFO and so on
	RTPriority int
	Kernel     bool
	CPUs       []int // on which it may run; nil: not known
	// Its cgroups for CPU time and memory where those are not Cgroup (version 1).
	CPUCgroup, MemoryCgroup string
}

// Names are what is known beside the trace: names for what it has as numbers,
// and how far it reaches. Each may be nil, and each answer empty.
type Names struct {
	// Covered tells when each CPU's events are all there, in order. Without it a
	// CPU is covered from its first event on.
	Covered  map[int][]Interval
	Syscall  func(nr int) string
	Function func(address uint64) string
	Device   func(dev uint32) string // major << 20 | minor
	Task     func(tid int) (TaskInfo, bool)
}

// Interval is a time, in nanoseconds of CLOCK_MONOTONIC.
type Interval struct{ From, To uint64 }

// Explain reads the source up to the end of the last outlier and explains
// each. Its memory is bounded by the events between the first outlier's start
// and the last one's end, and by maxKept. Damage is noted, not an error; an
// error is one of reading. It is safe for concurrent use with other sources.
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
			m.damaged = true
			if len(r.Notes) < maxNotes {
				r.Notes = append(r.Notes, err.Error())
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("explain: %w", err)
		}
		if ev.Time > m.to+stealDelay {
			break
		}
		if ev.Time > m.to {
			m.ingestLate(&ev)
			continue
		}
		m.ingest(&ev)
	}
	m.finish()
	for i := range outliers {
		r.Outliers = append(r.Outliers, m.explain(&outliers[i]))
	}
	return r, nil
}

const maxNotes = 16

// explain tells where the time of one outlier went.
func (m *model) explain(o *Outlier) Result {
	w := &walker{m: m, outlier: o}
	var pieces []piece
	if o.Start < o.End {
		switch o.Track {
		case "irq", "softirq":
			pieces = w.interruptPieces()
		case "block":
			pieces = w.blockPieces()
		default:
			pieces = w.follow(o.TID, o.Start, o.End)
		}
	}
	r := Result{
		Rule: o.Rule, Track: o.Track, Cause: o.Cause,
		StartMonoNS: o.Start, EndMonoNS: max(o.End, o.Start), Task: *m.whoSlow(o),
	}
	r.DelayNS = int64(r.EndMonoNS - r.StartMonoNS)
	r.Parts = sumParts(pieces, false)
	r.Roots = sumParts(pieces, true)
	if len(r.Parts) > 0 {
		r.Blame = groupByCause(r.Parts)[0].parts[0]
		r.Chain = chain(pieces, &r.Blame)
	}
	r.Path = steps(m, pieces)
	attach(r.Path, o.Stacks, o.End)
	r.Verdict = w.verdict(&r, pieces)
	r.Advice = w.advice(&r)
	return r
}
