package explain

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// machine simulates a machine by causes: its tasks are programs that compute, sleep, and take
// locks, its devices serve requests and interrupt whoever runs. The trace and the truth both
// follow from that, neither from the other. What may be asked of the truth is in truth_test.go.
type machine struct {
	rnd    *rand.Rand
	now    uint64
	agenda agenda
	trace  events
	cpus   []*simCPU
	actors []*actor // all that have ever lived
	alive  map[int]*actor
	freed  []int // ids of those who have ended
	serial uint64
	hooks  bool // interrupts and softirqs have events of their own
	net    bool // packets have
	reuse  bool // ids of threads that have ended are given to others

	disks    []*disk
	locks    []*simLock
	pipes    []*pipe
	workers  []*kworker
	journal  *kworker
	parties  []*actor // at the barrier
	waiting  int      // tasks that wait for other tasks
	children int

	front, back *simServer // or nil
}

// moment is when something happens.
type moment struct {
	at, order uint64
	do        func()
}

type agenda []moment

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(moment)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// actor is one life of a thread: its id may be used again.
type actor struct {
	tid, prio int
	names     []string // the last one is today's
	cgroup    string
	kernel    bool
	cpu       *simCPU
	state     state
	since     uint64
	left      uint64 // to compute before next
	next      func()
	why       *reason // blocked: what has ended it
	hope      *reason // what is known of its wait before the end
	waitsFor  *actor  // its end
	given     func()  // what it waits for, while it does not
	truth     []episode
	notes     []note
	born      *actor // who has forked it
	parent    func() // to be told of its end
	dies      uint64 // 0: it lives
}

func (t *actor) comm() trace.Comm { return trace.MakeComm(t.names[len(t.names)-1]) }

func (t *actor) String() string { return fmt.Sprintf("%s %d", t.names[0], t.tid) }

// simCPU is a CPU of the machine.
type simCPU struct {
	n          int
	current    *actor
	ready      []*actor
	busy       bool // with interrupts
	pending    [][]simFrame
	reschedule bool
	since      uint64 // current computes since then
	turn       uint64 // changes with what it computes
	throttled  bool   // of the cgroup with a quota
	spans      []cpuSpan
	throttles  []Interval
	all        []*simCPU
}

func newMachine(seed uint64, reuse, servers bool) *machine {
	m := &machine{reuse: reuse, rnd: rand.New(rand.NewPCG(seed, 77)), now: 1_000_000, alive: map[int]*actor{}}
	m.hooks, m.net = m.rnd.IntN(3) > 0, m.rnd.IntN(2) == 0
	for n := range 1 + m.rnd.IntN(4) {
		m.cpus = append(m.cpus, &simCPU{n: n})
		m.mark(m.cpus[n], nil)
		m.emit(m.cpus[n], trace.CPUIdle, trace.Idle{CPU: n})
	}
	for _, c := range m.cpus {
		c.all = m.cpus
	}
	m.furnish()
	if servers {
		m.serveMany()
	}
	for range 3 + m.rnd.IntN(9) {
		t := m.newActor(m.name(), 120)
		if m.rnd.IntN(6) == 0 {
			t.prio = []int{49, 100, 130}[m.rnd.IntN(3)]
		}
		if m.rnd.IntN(4) == 0 {
			t.cgroup = quotaCgroup
		}
		m.at(m.us(1, 500), func() { m.begin(t, m.cpus[m.rnd.IntN(len(m.cpus))]) })
	}
	m.at(m.us(500, 5000), m.quota)
	m.at(m.us(100, 500), m.noise)
	return m
}

// name is an ordinary program's.
func (m *machine) name() string {
	m.serial++
	return fmt.Sprintf("%s-%d", []string{"web", "db", "batch", "cron"}[m.rnd.IntN(4)], m.serial)
}

func (m *machine) newActor(name string, prio int) *actor {
	tid := 1001 + len(m.actors)
	if n := len(m.freed); n > 0 && m.reuse && m.rnd.IntN(2) == 0 {
		tid, m.freed = m.freed[0], m.freed[1:]
	}
	t := &actor{tid: tid, prio: prio, names: []string{name}, cgroup: "/app", state: unknown, since: m.now}
	t.kernel = prio == 121 // marks those of the kernel here
	if t.kernel {
		t.prio = 120
	}
	m.actors = append(m.actors, t)
	m.alive[tid] = t
	return t
}

// run lets so much time pass.
func (m *machine) run(ns uint64) {
	end := m.now + ns
	for len(m.agenda) > 0 && m.agenda[0].at <= end {
		x := heap.Pop(&m.agenda).(moment)
		m.now = x.at
		x.do()
	}
	m.now = end + 1
	for _, t := range m.actors {
		m.become(t, unknown)
	}
	for _, c := range m.cpus {
		m.mark(c, nil)
	}
}

// at plans something.
func (m *machine) at(in uint64, do func()) {
	m.serial++
	heap.Push(&m.agenda, moment{m.now + in, m.serial, do})
}

// us is a random time, short ones being more frequent.
func (m *machine) us(least, most uint64) uint64 {
	share := m.rnd.Float64()
	return least*1000 + uint64(float64(most-least)*1000*share*share) + m.rnd.Uint64N(1000)
}

func (m *machine) emit(c *simCPU, kind trace.Type, body any) {
	tid := 0
	if c.current != nil {
		tid = c.current.tid
	}
	m.trace = append(m.trace, trace.Event{Time: m.now, CPU: c.n, Type: kind, TID: tid, Body: body})
}

// begin puts a new task on a CPU.
func (m *machine) begin(t *actor, c *simCPU) {
	t.cpu, t.left, t.next = c, m.us(5, 100), func() { m.live(t) }
	m.start(c, t)
}

// start lets a new task run; c is where it is made.
func (m *machine) start(c *simCPU, t *actor) {
	m.emit(c, trace.SchedWakeupNew, trace.Wake{Comm: t.comm(), TID: t.tid, PID: t.tid, Prio: t.prio, TargetCPU: t.cpu.n})
	m.become(t, runnable)
	m.enqueue(t)
}

// compute lets the current task of a CPU work for a while.
func (m *machine) compute(t *actor, ns uint64, next func()) {
	t.left, t.next = ns, next
	m.proceed(t.cpu)
}

// proceed lets a CPU work for its task.
func (m *machine) proceed(c *simCPU) {
	t := c.current
	if t == nil || c.busy {
		return
	}
	c.turn++
	turn := c.turn
	c.since = m.now
	m.at(t.left, func() {
		if turn == c.turn {
			c.turn++
			t.left = 0
			c.since = m.now
			t.next()
		}
	})
}

// pause stops that.
func (m *machine) pause(c *simCPU) {
	if t := c.current; t != nil && !c.busy {
		t.left -= min(t.left, m.now-c.since)
		c.since = m.now
		c.turn++
	}
}

// block takes the current task off its CPU until it is woken; then it goes on with next.
func (m *machine) block(t *actor, sw trace.Switch, next func()) {
	t.left, t.next = m.us(0, 5), next
	sw.PrevState = max(sw.PrevState, 1)
	m.swap(t.cpu, sw)
}

// swap lets the next task of a CPU have it.
func (m *machine) swap(c *simCPU, sw trace.Switch) {
	prev, next := c.current, c.take()
	if next == nil && prev != nil && sw.PrevState != 0 && m.rnd.IntN(2) == 0 {
		next = m.pull(c)
	}
	if prev == next {
		return
	}
	sw.PrevPrio, sw.NextPrio = 120, 120
	if prev != nil {
		sw.PrevComm, sw.PrevPrio = prev.comm(), prev.prio
	}
	if next != nil {
		sw.NextTID, sw.NextPID, sw.NextComm, sw.NextPrio = next.tid, next.tid, next.comm(), next.prio
	}
	if sw.PrevState == 0 {
		sw.Call = trace.CallNone
	}
	m.emit(c, trace.SchedSwitch, sw)
	switch {
	case prev == nil:
	case sw.PrevState != 0:
		m.become(prev, blocked)
	default:
		m.become(prev, runnable)
		c.ready = append(c.ready, prev)
	}
	if c.current = next; next != nil {
		m.become(next, running)
	}
	m.mark(c, nil)
	c.turn++
	m.proceed(c)
	m.slice(c)
}

// slice ends the time of a task if others wait.
func (m *machine) slice(c *simCPU) {
	t := c.current
	if t == nil {
		return
	}
	since := t.since
	m.at(m.us(300, 4000), func() {
		if c.current == t && t.since == since {
			m.preempt(c)
			if c.current == t {
				m.slice(c)
			}
		}
	})
}

// take returns the first of the most urgent tasks that wait for a CPU, or nil.
func (c *simCPU) take() *actor {
	best := -1
	for i, t := range c.ready {
		if c.throttled && t.cgroup == quotaCgroup {
			continue
		}
		if best < 0 || t.prio < c.ready[best].prio {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	t := c.ready[best]
	c.ready = slices.Delete(c.ready, best, best+1)
	return t
}

// pull takes a task from the queue of another CPU.
func (m *machine) pull(c *simCPU) *actor {
	for _, from := range m.cpus {
		if from == c || c.throttled || from.throttled {
			continue
		}
		if t := from.take(); t != nil {
			m.migrate(c, t, c)
			return t
		}
	}
	return nil
}

// migrate moves a task that is ready to another CPU.
func (m *machine) migrate(c *simCPU, t *actor, to *simCPU) {
	m.emit(c, trace.SchedMigrate, trace.Migrate{Comm: t.comm(), TID: t.tid, Prio: t.prio, OrigCPU: t.cpu.n, DestCPU: to.n})
	m.become(t, runnable)
	t.cpu = to
}

// preempt lets more urgent tasks, or those whose turn it is, have the CPU.
func (m *machine) preempt(c *simCPU) {
	if c.busy {
		c.reschedule = true
		return
	}
	if t := c.current; t != nil {
		if !slices.ContainsFunc(c.ready, func(o *actor) bool {
			return (o.prio < t.prio || o.prio == t.prio && t.prio >= realTime || o.prio >= realTime && t.prio >= realTime) && !(c.throttled && o.cgroup == quotaCgroup)
		}) {
			return
		}
	}
	m.pause(c)
	m.swap(c, trace.Switch{})
}

// wake ends a wait, on a CPU, in a context on top of its task.
func (m *machine) wake(c *simCPU, t *actor, context uint32, why reason) {
	if t.state != blocked || t.dies != 0 {
		return
	}
	m.emit(c, trace.SchedWaking, trace.Wake{Comm: t.comm(), TID: t.tid, PID: t.tid, Prio: t.prio, TargetCPU: t.cpu.n, Context: context})
	t.why, t.waitsFor = &why, nil
	m.become(t, runnable)
	if t.cpu.current != nil && m.rnd.IntN(2) == 0 {
		to := m.cpus[m.rnd.IntN(len(m.cpus))]
		for _, o := range m.cpus {
			if o.current == nil && m.rnd.IntN(2) == 0 {
				to = o
			}
		}
		if to != t.cpu {
			m.migrate(c, t, to)
		}
	}
	m.enqueue(t)
}

// enqueue lets a ready task wait for its CPU, which may be idle.
func (m *machine) enqueue(t *actor) {
	c := t.cpu
	c.ready = append(c.ready, t)
	switch {
	case c.current == nil:
		m.at(m.us(0, 20), func() {
			if c.current == nil {
				m.preempt(c)
			}
		})
	case t.prio < c.current.prio:
		m.at(m.us(0, 4), func() { m.preempt(c) })
	}
}

const quotaCgroup = "/quota"

// quota takes the CPU from the tasks of one cgroup for a while.
func (m *machine) quota() {
	c := m.anyCPU()
	if t := c.current; t != nil && t.cgroup == quotaCgroup && !c.busy && !c.throttled {
		c.throttled = true
		c.throttles = append(c.throttles, Interval{m.now, forever})
		m.pause(c)
		m.swap(c, trace.Switch{Throttled: true})
		m.at(m.us(500, 8000), func() {
			on := m.anyCPU()
			m.interrupt(on, m.hrtimer(fnTimeout, func() {
				m.emit(on, trace.CgroupUnthrottle, trace.Throttle{Cgroup: 4, CPU: c.n})
				c.throttled = false
				c.throttles[len(c.throttles)-1].To = m.now
				m.at(m.us(0, 3), func() { m.preempt(c) })
			}))
		})
	}
	m.at(m.us(200, 6000), m.quota)
}
