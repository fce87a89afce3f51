package explain

import (
	"math"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

const forever = math.MaxUint64

// Bounds of what is kept of a trace, which may be hostile.
const (
	maxKept     = 1 << 21 // segments, runs, stretches and requests together
	maxOpen     = 1 << 16 // requests, works or packets that have begun and not ended
	maxContexts = 16      // nested on one CPU
	maxTasks    = 1 << 18
	maxCPUs     = 1 << 13
)

// lateEvents is how long after an outlier's end events may still belong to it:
// programs read the clock before they write.
const lateEvents = 100_000

// lookBack is what is kept from before the first outlier: what led to it.
const lookBack = 2_000_000

// state of a task in a stretch of time.
type state uint8

const (
	unknown state = iota
	running
	runnable
	blocked
)

// segment is one stretch of a task's time. They follow each other without a gap.
type segment struct {
	from, to  uint64
	state     state
	preempted bool   // runnable: it had to leave
	throttled bool   // runnable: the quota of its cgroup was used up
	frozen    bool   // blocked
	iowait    bool   // blocked
	bits      uint32 // blocked: the kernel's state
	cpu       int32
	prio      int16
	call      int16 // blocked: the system call, trace.CallNone or trace.CallException
	wake      *wake // blocked: what ended it; runnable: what began it; nil: not seen
}

// wake is what ended a wait.
type wake struct {
	at      uint64
	cpu     int
	tid     int      // current on that CPU
	ctx     *context // on top of it; nil: the task itself did
	request *request // completed there just before
	work    *work    // that the task executed
	sender  int      // network: the local task that sent the packet; 0: not known
	device  string   // network: that the packet came from
	remote  bool     // network: an interrupt brought it
}

// task is one task's timeline.
type task struct {
	tid, pid    int
	comm        trace.Comm
	prio        int
	segments    []segment
	earlyWake   *wake   // came while it still ran
	carried     []frame // softirqs that were on its CPU when it left it (real-time kernels)
	work        *work   // that it executes now
	works       []*work // executed, in order
	calls       []call  // in order; the last may be open
	lockWaits   []lockWait
	memoryWaits []memoryWait
	guests      []call    // a virtual CPU: what its guest ran
	wakers      []wakerAt // tasks that woke it, in order; few are kept
}

// wakerAt is a moment and a task.
type wakerAt struct {
	at  uint64
	tid int
}

type call struct {
	from, to uint64
	nr       int
	name     string
}

// lockWait is a wait for a lock of the kernel.
type lockWait struct {
	from, to uint64
	owner    int
	flags    uint32
}

// memoryWait is a reclaim or a compaction.
type memoryWait struct {
	from, to uint64
	cause    Cause
	memcg    bool
}

// run is who had a CPU: 0 idle, -1 not known.
type run struct {
	from, to uint64
	tid      int
	prio     int
}

// context is an interrupt, a softirq or a timer on top of a task.
type context struct {
	kind     string // KindIRQ, KindSoftirq, KindTimer, KindHypervisor
	hr       bool   // timer: of high resolution
	number   int    // irq or vector
	name     string
	function uint64
}

type contextKey struct {
	kind     byte
	hr       bool
	number   int
	function uint64
}

// frame is an open context.
type frame struct {
	*context
	request *request // completed last in it
	sender  int
	device  string
	remote  bool
}

// interruption is a stretch in which a CPU did not run its task.
type interruption struct {
	from, to uint64
	*context
}

// cpu is what one CPU did.
type cpu struct {
	first         uint64     // from here on its events are there; 0: none was seen since
	known         bool       // covered is filled in
	covered       []Interval // to come
	current       int        // task
	lastSeen      uint64     // its latest event
	runs          []run
	interruptions []interruption
	steals        []interruption
	lastEvent     uint64    // time of the last event
	silences      []silence // stretches without any, not long ago
	frames        []frame
	framesChanged uint64 // when frames changed last
	irqEnd        uint64 // end of the last interrupt handler; 0: used up
	// lastRequest is the request that the current task completed last.
	lastRequest   *request
	lastRequestAt uint64
	quota         []quota
}

// quota is a stretch in which a cgroup may not run on a CPU.
type quota struct {
	from, to uint64
	tid, pid int // of the task that showed it; 0: a record did
	cgroup   uint64
}

// request is one block request.
type request struct {
	rq            uint64
	insert, issue uint64 // 0: not seen
	complete      uint64 // 0: not yet
	sector        uint64
	dev           uint32
	bytes         uint32
	flags         uint32
	tid           int
	comm          trace.Comm
	lastDone      uint64 // completion before its own on the device
}

// started is when it came to the queue or to the device.
func (r *request) started() uint64 {
	if r.insert > 0 && (r.issue == 0 || r.insert < r.issue) {
		return r.insert
	}
	return r.issue
}

// work is one execution of a work queue's work.
type work struct {
	work, function uint64
	queued         uint64 // 0: not seen
	queuer         int
	by             *wake // what queued it
	queue          string
	start, end     uint64
	worker         int
}

type queuedWork struct {
	by    *wake
	tid   int
	queue string
}

// packet is one on its way through this machine.
type packet struct {
	at     uint64
	sender int
}

// model is the part of a trace that matters: what overlaps [from, to].
type model struct {
	from, to       uint64
	outlierTimes   []Interval     // the outliers
	comms          map[int]string // of slow tasks, as they were called then
	names          Names
	tasks          map[int]*task
	cpus           map[int]*cpu
	inFlight       map[uint64]*request
	requests       []*request // completed in time, by completion
	lastDone       map[uint32]uint64
	queuedWorks    map[uint64]queuedWork
	queues         map[string][]*work // executed works whose queue is known
	packets        map[uint64]packet
	eventSeen      [64]bool // kinds of events
	firstEventTime uint64   // first event at all
	coveredFrom    uint64   // from here on all CPUs are covered
	kept           int
	scanned        int // at requests
	full           bool
	damaged        bool

	cpuCache  [64]*cpu   // the first ones of cpus
	taskCache [256]*task // some of tasks
	culprits  map[whoKey]*Who
	contexts  map[contextKey]*context
	wakes     []wake // to be handed out
	taskInfos map[int]*TaskInfo
}

func newModel(outliers []Outlier, names Names) *model {
	m := &model{
		from: forever, comms: map[int]string{}, names: names, tasks: map[int]*task{}, cpus: map[int]*cpu{},
		inFlight: map[uint64]*request{}, lastDone: map[uint32]uint64{}, queuedWorks: map[uint64]queuedWork{},
		queues: map[string][]*work{}, packets: map[uint64]packet{}, culprits: map[whoKey]*Who{}, contexts: map[contextKey]*context{}, taskInfos: map[int]*TaskInfo{},
	}
	for i := range outliers {
		m.comms[outliers[i].TID] = outliers[i].Comm
		m.outlierTimes = append(m.outlierTimes, Interval{outliers[i].Start, outliers[i].End})
		m.from = min(m.from, outliers[i].Start)
		m.to = max(m.to, outliers[i].End)
	}
	if m.to < forever-lateEvents {
		m.to += lateEvents
	}
	m.from -= min(m.from, lookBack)
	return m
}

// task finds a task, and makes it known. Past the limit all are one that is not kept.
func (m *model) task(tid int) *task {
	met := &m.taskCache[uint(tid)%uint(len(m.taskCache))]
	if *met != nil && (*met).tid == tid {
		return *met
	}
	t := m.tasks[tid]
	if t == nil {
		t = &task{tid: tid, prio: 120}
		if len(m.tasks) >= maxTasks {
			m.full = true
			return t
		}
		m.tasks[tid] = t
	}
	*met = t
	return t
}

// knownCPU finds a CPU; nil: it is not known.
func (m *model) knownCPU(n int) *cpu {
	if n >= 0 && n < len(m.cpuCache) {
		return m.cpuCache[n]
	}
	return m.cpus[n]
}

func (m *model) cpu(n int) *cpu {
	c := m.knownCPU(n)
	if c == nil {
		c = &cpu{}
		if len(m.cpus) < maxCPUs {
			m.cpus[n] = c
			if n >= 0 && n < len(m.cpuCache) {
				m.cpuCache[n] = c
			}
		}
	}
	return c
}

// reserve tells whether there is room for one thing more.
func (m *model) reserve() bool {
	if m.kept >= maxKept {
		m.full = true
		return false
	}
	m.kept++
	return true
}

// appendGrow appends to a list that may become long: it doubles, where append grows by
// a quarter and copies four times as much.
func appendGrow[T any](list []T, x T) []T {
	if len(list) == cap(list) {
		list = slices.Grow(list, max(len(list), 4))
	}
	return append(list, x)
}

// last returns the task's open segment, or nil.
func (t *task) last() *segment {
	if n := len(t.segments); n > 0 && t.segments[n-1].to == forever {
		return &t.segments[n-1]
	}
	return nil
}

// transition ends the task's open segment at the given time and opens the next one.
func (m *model) transition(t *task, at uint64, s segment) {
	if o := t.last(); o != nil {
		o.to = max(at, o.from)
		// What ended before the window explains nothing.
		if o.to <= m.from || o.to == o.from {
			t.segments = t.segments[:len(t.segments)-1]
			m.kept--
		}
	}
	if n := len(t.segments); n > 0 {
		at = max(at, t.segments[n-1].to) // a hostile trace
	}
	s.from, s.to = at, forever
	if m.reserve() {
		t.segments = appendGrow(t.segments, s)
	}
}
