package explain

import (
	"math"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

const forever = math.MaxUint64

// state of a task in a stretch of time.
type state uint8

const (
	unknown state = iota
	running
	runnable
	blocked
)

var stateNames = [...]string{"unknown", "running", "runnable", "blocked"}

// segment is one stretch of a task's time. They follow each other without a gap.
type segment struct {
	from, to  uint64
	state     state
	preempted bool // runnable: it had to leave
	throttled bool // runnable: the quota of its cgroup was used up
	iowait    bool // blocked
	frozen    bool // blocked
	cpu       int
	bits      uint32 // blocked: the kernel's state
	call      int    // blocked: the system call, trace.CallNone or trace.CallException
	wake      *wake  // blocked: what ended it; runnable: what woke it; nil: not seen
}

// wake is what ended a wait.
type wake struct {
	at  uint64
	cpu int
	tid int     // current on that CPU
	ctx context // what ran on top of it
}

// task is one task's timeline.
type task struct {
	tid, pid int
	comm     trace.Comm
	prio     int
	segments []segment
	held     []context // soft contexts that were on its CPU when it left it (real-time kernels)
	work     *work     // that it executes now
	works    []*work   // executed, in order
	calls    []call    // in order; the last may be open
	locks    []locking
	reclaims []effort
	queued   uint64 // when it last put something on a network device
}

type call struct {
	from, to uint64
	nr       int
	name     string
}

// locking is a wait for a lock of the kernel.
type locking struct {
	from, to uint64
	owner    int
	flags    uint32
}

// effort is a reclaim or a compaction.
type effort struct {
	from, to uint64
	cause    Cause
}

// run is who had a CPU.
type run struct {
	from, to uint64
	tid      int
	prio     int
}

// context is an interrupt, a softirq or a timer on top of a task, or its work.
type context struct {
	kind     string // KindIRQ, KindSoftirq, KindTimer, KindWork; "": none
	from     uint64
	number   int // irq or vector
	name     string
	function uint64
	fromIRQ  bool // softirq: an interrupt raised it, not the task below
	request  *request
	work     *work
	hr       bool
}

// over is a stretch in which a CPU did not run its task.
type over struct {
	from, to uint64
	tid      int // below
	kind     string
	number   int
	name     string
	function uint64
}

type cpu struct {
	first    uint64 // time of its first event
	runs     []run
	overs    []over
	contexts []context
	lastIRQ  uint64 // end of the last interrupt handler
	switched bool
}

// request is one block request.
type request struct {
	rq               uint64
	insert, issue    uint64 // 0: not seen
	complete         uint64
	dev              uint32
	sector           uint64
	bytes            uint32
	flags            uint32
	tid              int
	comm             trace.Comm
	journal, flushed bool
}

// work is one execution of a work queue's work.
type work struct {
	work, function uint64
	queued         uint64 // 0: not seen
	queuer         int
	queue          string
	start, end     uint64
	request        *request // that it completed last
}

type queuedWork struct {
	at    uint64
	tid   int
	queue string
}

// model is the part of a trace that matters: what overlaps [from, to].
type model struct {
	from, to uint64
	names    Names
	tasks    map[int]*task
	cpus     map[int]*cpu
	inFlight map[uint64]*request
	requests []*request // completed in time, by completion
	waiting  map[uint64]queuedWork
	begin    uint64 // first event at all
	kept     int
	full     bool
	damaged  bool
	syscalls bool // system calls are recorded
	net      bool // packets are
}

// lateness is how long after an outlier's end events may still belong to it:
// programs read the clock before they write.
const lateness = 100_000

func newModel(outliers []Outlier, names Names) *model {
	m := &model{
		from: forever, names: names, tasks: map[int]*task{}, cpus: map[int]*cpu{},
		inFlight: map[uint64]*request{}, waiting: map[uint64]queuedWork{},
	}
	for i := range outliers {
		m.from = min(m.from, outliers[i].Start)
		m.to = max(m.to, outliers[i].End)
	}
	m.to += lateness
	return m
}

func (m *model) task(tid int) *task {
	t := m.tasks[tid]
	if t == nil {
		t = &task{tid: tid, prio: 120}
		m.tasks[tid] = t
	}
	return t
}

func (m *model) cpu(n int) *cpu {
	c := m.cpus[n]
	if c == nil {
		c = &cpu{}
		m.cpus[n] = c
	}
	return c
}

// last returns the task's open segment, or nil.
func (t *task) last() *segment {
	if n := len(t.segments); n > 0 && t.segments[n-1].to == forever {
		return &t.segments[n-1]
	}
	return nil
}

// turn ends the task's open segment at the given time and opens the next one.
func (m *model) turn(t *task, at uint64, s segment) {
	if o := t.last(); o != nil {
		o.to = max(at, o.from)
		// What ended before the window explains nothing.
		if o.to <= m.from || o.to == o.from {
			t.segments = t.segments[:len(t.segments)-1]
		}
	}
	s.from, s.to = at, forever
	if len(t.segments) > 0 && m.kept >= maxSegments {
		m.full = true
		t.segments[len(t.segments)-1].to = at
		return
	}
	m.kept++
	t.segments = append(t.segments, s)
}

func (m *model) finish() {
	for _, t := range m.tasks {
		if s := t.last(); s != nil {
			s.to = max(m.to, s.from)
		}
		if t.work != nil {
			t.work.end = m.to
			t.works = append(t.works, t.work)
		}
		for i := range t.calls {
			t.calls[i].to = min(t.calls[i].to, m.to)
		}
		for i := range t.locks {
			t.locks[i].to = min(t.locks[i].to, m.to)
		}
		for i := range t.reclaims {
			t.reclaims[i].to = min(t.reclaims[i].to, m.to)
		}
	}
	for _, c := range m.cpus {
		if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
			c.runs[n-1].to = m.to
		}
		for _, x := range c.contexts {
			c.over(m, x, m.to, 0)
		}
		slices.SortStableFunc(c.overs, func(a, b over) int {
			switch {
			case a.from < b.from:
				return -1
			case a.from > b.from:
				return 1
			}
			return 0
		})
		c.overs = flatten(c.overs)
	}
}

// flatten lets the outer one of stretches that overlap win.
func flatten(in []over) []over {
	out := in[:0]
	var end uint64
	for _, o := range in {
		o.from = max(o.from, end)
		if o.from >= o.to {
			continue
		}
		end = o.to
		out = append(out, o)
	}
	return out
}
