package explain

import (
	"math"
	"slices"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/snapshot/trace"
)

const forever = math.MaxUint64

// Limits for hostile traces.
const (
	maxKept     = 1 << 21 // segments, runs, intervals and requests in total
	maxOpen     = 1 << 16 // requests, works or packets in progress
	maxContexts = 16      // nesting depth on one CPU
	maxTasks    = 1 << 18
	maxCPUs     = 1 << 13
)

// lateEvents is how long after an outlier's end its events may arrive: programs read
// the clock before they write.
const lateEvents = 100_000

// lookBack is the time kept before the first outlier.
const lookBack = 2_000_000

// state is a task's scheduling state.
type state uint8

const (
	unknown state = iota
	running
	runnable
	blocked
)

// segment is an interval of a task in one state. A task's segments are contiguous.
type segment struct {
	from, to  uint64
	state     state
	preempted bool        // runnable: lost its CPU
	throttled bool        // runnable: its cgroup's quota is used up
	frozen    bool        // blocked
	iowait    bool        // blocked
	assumed   bool        // blocked: without any event of the task
	futex     trace.Futex // blocked
	bits      uint32      // blocked: the kernel's task state
	cpu       int32
	prio      int16
	call      int16 // blocked: the system call, trace.CallNone or trace.CallException
	wake      *wake // blocked: what ended it; runnable: what started it; nil: unknown
}

// wake describes a wake-up.
type wake struct {
	at      uint64
	cpu     int
	tid     int      // current task of that CPU
	ctx     *context // innermost context; nil: the task itself
	request *request // just completed there
	near    bool     // request: by the time alone
	local   bool     // network: received within a system call of the task
	letOut  wait     // network: what had held back the packet, if that is known
	signal  bool     // the task had a signal to take
	thaw    bool     // the task was frozen in its sleep until then
	burst   *int     // tasks that the same task woke at once
	work    *work    // executed by the task
	sender  int      // network: local sender of the packet, or 0
	guessed bool     // sender: see guessSender
	device  string   // network: where the packet came from
	// protocol is the timer of TCP that probably sent the packet, or ended the wait.
	protocol *protocolTimer
}

// task is the timeline of a task.
type task struct {
	tid, pid    int
	comm        trace.Comm
	prio        int
	segments    []segment
	before      []waited // the last waits for input before these; a few
	earlyWake   *wake    // arrived while it was still running
	letGo       []*wake  // by tasks, while it was running, in order
	carried     []frame  // softirqs it takes along when it leaves a CPU (real-time kernels)
	work        *work    // in progress
	works       []*work  // completed, in order
	calls       []call   // in order; the last one may be open
	lockWaits   []lockWait
	memoryWaits []memoryWait
	usual       []usualEnd      // who has ended its waits; a few kinds
	tries       []*fileLock     // for locks of files, in vain or not, in order
	sleptLate   uint64          // when it slept first after what else is kept of it; 0: not known
	guests      []call          // virtual CPU: time its guest ran
	wakers      []wakerAt       // tasks that woke it, in order; a few
	waited      []stackAt       // at the ends of its long waits, in order
	samples     []stackAt       // while it ran, in order
	protocol    []protocolTimer // of sockets that it waited for, in order
	series      []int32         // see findSeries; nil: not computed
	born        uint64          // when it was made; 0: not known
	parent      int             // process that made it then
	maker       int             // thread of that; 0: not known
	past        *threadNow      // see model.thread
	askedPast   int
	slept       sleptIn // the last time
}

// sleptIn tells whether a task that went to sleep was in a system call, or in an exception: kernel
// threads never are.
type sleptIn uint8

const (
	notSlept sleptIn = iota
	inCall
	outsideCalls
)

// wakerAt is a wake-up by a task.
type wakerAt struct {
	at  uint64
	tid int
}

type call struct {
	from, to uint64
	nr       int
	name     string
}

// lockWait is a wait for a kernel lock.
type lockWait struct {
	from, to uint64
	owner    int
	flags    uint32
	lock     uint64 // address
}

// memoryWait is a reclaim or compaction.
type memoryWait struct {
	from, to uint64
	cause    Cause
	memcg    bool
}

// run is an interval in which a task had a CPU; tid 0: idle, -1: unknown.
type run struct {
	from, to uint64
	tid      int
	prio     int
	assumed  bool // the priority, until it is known
}

// context is an interrupt, softirq or timer that runs on top of a task.
type context struct {
	kind     string // KindIRQ, KindSoftirq, KindTimer, KindHypervisor
	hr       bool   // timer: hrtimer
	number   int    // of the irq or vector
	name     string
	function uint64
}

type contextKey struct {
	kind     byte
	hr       bool
	number   int
	function uint64
}

// frame is an active context.
type frame struct {
	*context
	request *request // last completed in it
	sender  int
	device  string
}

// interruption is an interval in which a CPU did not run its task.
type interruption struct {
	from, to uint64
	*context
	sampled bool // from, to and what it was are approximate
	placed  bool // how long it took is known, when is not
}

// cpu is the timeline of a CPU.
type cpu struct {
	first         uint64     // start of the available events; 0: none
	known         bool       // covered is initialized
	covered       []Interval // still ahead
	current       int        // current task
	left          int        // the task before, if it has left unseen
	lastSeen      uint64     // latest event of its tasks
	runs          []run
	interruptions []interruption
	steals        []interruption
	lastEvent     uint64    // latest event
	silences      []silence // recent intervals without events
	frames        []frame
	framesChanged uint64 // last change of frames
	sample        sample
	taskAt        uint64 // when its task was surely at work; 0: not known
	// lastRequest is the request last completed by the current task.
	lastRequest   *request
	lastRequestAt uint64
	burst         burst
	quota         []quota
	idles         []idleState
	frequencies   []frequency
	protocol      protocolTimer // the last one since a switch; at 0: none
	letOut        letOut        // the last since a switch
	// What the CPU's softirqs have still to do is left to ksoftirqd, which last began with it then.
	softirqsLeft  bool
	softirqsBegan uint64
	received      frame // the last packet since a switch, received outside a softirq that is recorded
	receivedAt    uint64
}

// quota is an interval in which a cgroup is throttled on a CPU.
type quota struct {
	from, to uint64
	tid, pid int // throttled task; 0: known from a cgroup event
	cgroup   uint64
}

// request is one block request.
type request struct {
	rq            uint64
	insert, issue uint64 // 0: unknown; issue is the first
	last          uint64 // issue: devices that are busy are asked again
	complete      uint64 // 0: in progress
	sector        uint64
	dev           uint32
	bytes         uint32
	flags         uint32
	tid           int
	comm          trace.Comm
	lastDone      uint64 // previous completion on the device
	by            *work  // what submitted it, if a work item did
}

// started returns when the request was queued or issued, whichever was first.
func (r *request) started() uint64 {
	if r.insert > 0 && (r.issue == 0 || r.insert < r.issue) {
		return r.insert
	}
	return r.issue
}

// work is one execution of a work item.
type work struct {
	work, function uint64
	queued         uint64 // 0: unknown
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

// packet is a packet in transit within this machine.
type packet struct {
	at     uint64
	sender int
}

// burst is the wake-ups by one task at about one time, of those that wait for one futex.
type burst struct {
	tid   int
	at    uint64 // the first of them
	place int
	count *int
}

// model is the part of a trace within [from, to].
type model struct {
	from, to       uint64
	outlierTimes   []Interval
	comms          map[int]string       // of slow tasks, at the time of the outlier
	lives          map[int]*lives       // of threads that have ended, by what the kernel calls them
	keyed          map[uint64][]transit // by a value of an outlier's key: packets of that address
	names          Names
	tasks          map[int]*task
	cpus           map[int]*cpu
	inFlight       map[uint64]*request
	requests       []*request // completed ones, by completion time
	lastDone       map[uint32]uint64
	queuedWorks    map[uint64]queuedWork
	queues         map[string][]*work         // executed works by queue
	fileLocks      map[lockedFile][]*fileLock // in order
	packets        map[uint64]packet
	eventSeen      [64]bool // types of events seen
	firstEventTime uint64   // in the trace
	coveredFrom    uint64   // all CPUs are covered from here
	kept           int
	scanned        int // requests examined
	full           bool
	damaged        bool
	gaps           []Interval // in which records of some CPU are missing, in order
	socketsKnown   bool       // timers of TCP say what they are for
	// switches say in which system call a task goes to sleep
	callsOfSwitches bool
	reading         bool              // events: what has to be waited for is not asked for
	protocols       map[uint64]wait   // protocolTimers, by address
	letOuts         map[uint64]wait   // letOutTimers, by address
	letOutAt        map[uint64]uint64 // when those timers last expired, by the timer

	cpuCache   [64]*cpu   // cpus by number
	taskCache  [256]*task // recently used tasks
	culprits   map[whoKey]*Who
	contexts   map[contextKey]*context
	wakes      []wake // block allocation
	taskInfos  map[int]*TaskInfo
	activities []Carried         // set with carried
	refaults   map[int][]refault // pages that threads read again; set with carried
	carried    map[int][]carried // by thread; nil: not asked for yet
	published  map[int][]carried // by thread: traces; nil: none
	moments    map[int][]Moment  // by thread; nil: not looked at yet
	labelled   []*Outlier        // declared pairs of threads that have labels
	roles      map[[2]int]role   // of a process for another
	replies    map[int][]reply   // by who woke; nil: not computed
	alone      map[int]bool      // see dedicated
	runtimes   map[int]bool      // see runtime
	habits     map[int]habits    // of threads of processes that may be runtimes
	threads    map[int][]int     // by process; nil: not computed
	received   map[string][]int  // see receivers; nil: not computed
	inputs     [1 << 10]int8     // system calls that wait for input: 1; not: -1
	sites      map[[len(trace.Stack{}.Frames)]uint64]waitsites.Match
	history    *history // nil: nothing is compared
}

func (c call) bounds() (from, to uint64)         { return c.from, c.to }
func (l lockWait) bounds() (from, to uint64)     { return l.from, l.to }
func (e memoryWait) bounds() (from, to uint64)   { return e.from, e.to }
func (r run) bounds() (from, to uint64)          { return r.from, r.to }
func (o interruption) bounds() (from, to uint64) { return o.from, o.to }

func newModel(outliers []Outlier, names Names) *model {
	m := &model{
		from: forever, comms: map[int]string{}, lives: map[int]*lives{}, keyed: map[uint64][]transit{}, names: names, tasks: map[int]*task{}, cpus: map[int]*cpu{},
		inFlight: map[uint64]*request{}, lastDone: map[uint32]uint64{}, queuedWorks: map[uint64]queuedWork{},
		queues: map[string][]*work{}, fileLocks: map[lockedFile][]*fileLock{}, packets: map[uint64]packet{}, culprits: map[whoKey]*Who{}, contexts: map[contextKey]*context{}, taskInfos: map[int]*TaskInfo{}, roles: map[[2]int]role{}, protocols: map[uint64]wait{}, letOuts: map[uint64]wait{}, letOutAt: map[uint64]uint64{}, runtimes: map[int]bool{}, habits: map[int]habits{},
	}
	for i := range outliers {
		for _, v := range outliers[i].Key {
			m.keyed[v] = nil
		}
		m.outlierTimes = append(m.outlierTimes, Interval{outliers[i].Start, outliers[i].End})
		m.from = min(m.from, outliers[i].Start)
		m.to = max(m.to, outliers[i].End)
	}
	if m.to < forever-lateEvents {
		m.to += lateEvents
	}
	m.from -= min(m.from, lookBack)
	m.collectPublished(outliers)
	m.findGaps()
	return m
}

// task returns a task, creating it if needed. Beyond maxTasks it is not stored.
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

// knownCPU returns a CPU, or nil.
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

// reserve reports whether one more item may be kept.
func (m *model) reserve() bool {
	if m.kept >= maxKept {
		m.full = true
		return false
	}
	m.kept++
	return true
}

// appendGrow is append with doubling, which copies long lists less often.
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

// transition ends the open segment of a task at the given time and opens s.
func (m *model) transition(t *task, at uint64, s segment) {
	if o := t.last(); o != nil {
		o.to = max(at, o.from)
		// Drop segments before the window.
		if o.to <= m.from || o.to == o.from {
			m.keepBefore(t, o)
			t.segments = t.segments[:len(t.segments)-1]
			m.kept--
		}
	}
	if n := len(t.before); n > 0 && s.state == running && t.before[n-1].ran == 0 {
		t.before[n-1].ran = at
	}
	if n := len(t.segments); n > 0 {
		at = max(at, t.segments[n-1].to) // only if the trace is damaged
	}
	s.from, s.to = at, forever
	if m.reserve() {
		t.segments = appendGrow(t.segments, s)
	}
}
