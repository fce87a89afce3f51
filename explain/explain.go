// Package explain explains where the time of an outlier went: its parts, the tasks,
// interrupts and devices it waited for, and the culprit. It reads only a trace, so it
// needs neither privileges nor the daemon and accepts any trace. Time it cannot explain
// is reported as unexplained.
//
// Its rules are described in docs/explain.md.
package explain

import (
	"errors"
	"fmt"
	"io"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// Source returns events in order of time, then io.EOF. It can be read on after an error
// that wraps trace.ErrDamaged. *trace.Reader implements it.
type Source interface {
	Next() (trace.Event, error)
}

// Outlier is an outlier to explain. Times are in nanoseconds of CLOCK_MONOTONIC.
type Outlier struct {
	Rule, Track, Cause string
	Start, End         uint64
	TID, PID           int
	Comm               string
	CPU                int    // at the end
	Syscall            string // track syscall: the call; otherwise the call it sleeps in, if known
	Device             string // track block
	Sector             uint64 // track block
	IRQ                int    // track irq
	Name               string // track irq: handler; softirq: vector, such as NET_RX
	Raised             bool   // track softirq: time from raise to run
	Queue              string // track workqueue; Name is the function
	Waiting            bool   // track workqueue: from queue to run
	Asleep             bool   // track trigger: blocked at the end, in system call Call
	Call               int    // trace.CallNone: none, or unknown
	Stacks             []Stack
	User               []string // user stack of a sleep that the outlier is
	// Key is what makes entry and exit belong together, if that is not a thread: TID was
	// only current then, and may have been interrupted. Nil: it is the thread TID.
	Key map[string]uint64
	// Loose: entry and exit are of one thread, but their key is not.
	Loose bool
	// Began is the other thread in which such work began; "": unknown or the same.
	Began string
	// Account is where the time of an activity went, in words, of all its threads.
	Account string
	// Token of the activity that the outlier is, or that its task worked for, if known.
	Token string
	// TraceID and SpanID are those that its program has published for its thread, if they are of
	// all the time.
	TraceID, SpanID string
	// Waker and OnCPU are what is known of who woke it, and of who kept its CPU; nil: nothing.
	Waker, OnCPU *Published
	// Labels of a declared pair, such as its query.
	Labels map[string]string
}

// Stack is a stack of the slow task, valid from a time on: when it left its CPU, became
// runnable, or at the outlier's end. The innermost frame comes first.
type Stack struct {
	At     uint64
	Frames []string
	Waker  bool // of the task that woke it
}

// TaskInfo is information about a task from outside the trace.
type TaskInfo struct {
	PID  int
	PPID int // 0: unknown
	// Session is the id of its session; 0: unknown.
	Session int
	Comm    string
	Title   string // what its process calls itself, if that is not Comm
	Exited  bool   // known from before it exited: its id may have been another's since
	Cgroup  string
	Place
	Policy     string // SCHED_FIFO, …
	RTPriority int
	Kernel     bool
	CPUs       []int // CPU affinity; nil: unknown
	Anonymous  int64 // memory of its process that is of no file, and not swapped out, in bytes
	// CPU, memory and blkio cgroups on cgroup v1, where they differ from Cgroup.
	CPUCgroup, MemoryCgroup, IOCgroup string
}

// Names is information from outside the trace: names for numbers, and coverage. Any
// field may be nil, any answer empty.
type Names struct {
	// Covered lists the intervals in which each CPU's events are complete, in order. By
	// default a CPU is covered from its first event on.
	Covered  map[int][]Interval
	Syscall  func(nr int) string
	Function func(address uint64) string // or of an address within, with an offset
	// Timer is Function for the functions of timers. It and Syscall are asked while events are
	// read, and so must have the answer; the others are asked after all events. Nil: Function.
	Timer  func(address uint64) string
	Code   func(pid int, address uint64) string // function of a program
	Device func(dev uint32) string              // major << 20 | minor
	Task   func(tid int) (TaskInfo, bool)
	// Tasks are all that Task knows. Those that have no event slept all the time.
	Tasks func() []int
	// Setting is what a setting of the kernel or of a disk was when the trace was taken,
	// such as vm.dirty_bytes; Limit the same for a file of a cgroup, such as cpu.max.
	Setting func(name string) string
	Limit   func(cgroup, name string) string
	// Listener is the process that listened on a port of TCP in the network namespace of a task,
	// of which the trace tells that its accept queue was full; 0: not known.
	Listener func(tid, port int) (pid int)
	// Sockets are those of a process, shortly after the end of the trace.
	Sockets func(pid int) (Sockets, bool)
	// Activities are those that tasks worked for.
	Activities func() []Carried
	// Moments are traces that programs had published for their threads.
	Moments func() []Moment
}

// Interval is in nanoseconds of CLOCK_MONOTONIC.
type Interval struct{ From, To uint64 }

// Explain reads src up to the end of the last outlier and explains each outlier. Memory
// is bounded by the number of events between the first start and the last end, and by
// maxKept. Damage in the trace is noted in the report and is not an error. Calls with
// different sources may run concurrently.
func Explain(src Source, outliers []Outlier, names Names) (*Report, error) {
	r := &Report{Version: Version, Outliers: []Result{}}
	if len(outliers) == 0 {
		return r, nil
	}
	m := newModel(outliers, names)
	m.history, m.reading = newHistory(outliers), true
	end, last, beyond := m.to, uint64(0), false
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
		if last = max(last, ev.Time); last > end && !beyond {
			beyond = true
			if m.timeLimitEnded(outliers) {
				m.to += lookAhead
			}
		}
		if ev.Time > m.to+stealDelay {
			break
		}
		m.identify(&ev)
		if ev.Time > m.to {
			m.ingestLate(&ev)
			continue
		}
		if ev.Time <= m.from {
			m.history.remember(&ev)
		}
		m.ingest(&ev)
	}
	m.to, m.reading = min(m.to, max(end, last)), false
	m.finish()
	outliers = m.identifyOutliers(outliers)
	for i := range outliers {
		m.assumeAsleep(&outliers[i])
	}
	for i := range outliers {
		r.Outliers = append(r.Outliers, m.explain(&outliers[i]))
	}
	m.publish(r)
	return r, nil
}

const maxNotes = 16

// explain explains one outlier.
func (m *model) explain(o *Outlier) Result {
	w := &walker{m: m, outlier: o}
	pieces := w.all()
	r := Result{
		Rule: o.Rule, Track: o.Track, Cause: o.Cause,
		StartMonoNS: o.Start, EndMonoNS: max(o.End, o.Start), Task: *m.whoSlow(o),
	}
	r.DelayNS = int64(r.EndMonoNS - r.StartMonoNS)
	r.Parts = sumParts(pieces, false)
	r.Roots = sumParts(pieces, true)
	if len(r.Parts) > 0 {
		w.locate(r.Parts, pieces, false)
		w.locate(r.Roots, pieces, true)
		r.Blame = groupByCause(r.Parts)[0].parts[0]
		w.chained = chain(pieces, &r.Blame)
		p := longest(pieces, &r.Blame)
		w.longestWhy, w.onTop = p.why, p.state != "blocked"
		for i := range w.chained {
			w.locate(w.chained[i].parts, w.chained[i].pieces, false)
			r.Chain = append(r.Chain, w.chained[i].part())
		}
	}
	r.Confidence = confidence(&r)
	w.recognise(&r, pieces)
	w.onBehalfOf(&r, pieces)
	w.activities(&r, pieces)
	r.Path = w.steps(pieces)
	attach(r.Path, o.Stacks, o.End)
	r.Verdict = w.verdict(&r, pieces)
	r.Advice = w.advice(&r)
	r.Without = w.without(&r, pieces)
	r.Before = w.before(&r, pieces)
	return r
}

// all returns the pieces of the outlier's time, none if it has none.
func (w *walker) all() []piece {
	if w.outlier.Start >= w.outlier.End {
		return nil
	}
	switch w.outlier.Track {
	case "irq", "softirq":
		return w.interruptPieces()
	case "block":
		return w.blockPieces()
	case "workqueue":
		return w.workItemPieces()
	case "trigger":
		return w.triggerPieces("the trigger has no target")
	case "activity":
		if pieces, ok := w.requestPieces(); ok {
			return pieces
		}
		return w.triggerPieces("no thread was seen to carry it")
	}
	return w.threadPieces()
}
