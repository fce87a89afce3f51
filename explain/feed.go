package explain

import (
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

const (
	taskDead     = 0x80
	softirqNetTX = 2
	softirqNetRX = 3
	reqOpMask    = 0xff
	reqOpFlush   = 2
	reqPreflush  = 1 << 18
)

var vectors = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

func vectorName(n int) string {
	if n >= 0 && n < len(vectors) {
		return vectors[n]
	}
	return "?"
}

// feed takes in one event.
func (m *model) feed(ev *trace.Event) {
	if ev.Type >= trace.DumpStart { // of no record: the state dump, the ends of outliers
		return
	}
	c := m.cpu(ev.CPU)
	if c.first == 0 {
		c.first = ev.Time
	}
	if m.begin == 0 {
		m.begin = ev.Time
	}
	switch b := ev.Body.(type) {
	case trace.Switch:
		m.feedSwitch(ev, c, &b)
	case trace.Wake:
		m.feedWake(ev, c, &b)
	case trace.Migrate:
		t := m.task(b.TID)
		if s := t.last(); s != nil && s.state == runnable && s.cpu != b.DestCPU {
			next := *s
			next.cpu = b.DestCPU
			m.turn(t, ev.Time, next)
		} else if s != nil && s.state == blocked {
			s.cpu = b.DestCPU
		}
	case trace.Fork:
		t := m.task(b.ChildTID)
		t.pid, t.comm = b.ChildPID, b.ChildComm
	case trace.Exec:
		t := m.task(ev.TID)
		t.pid, t.comm = b.PID, b.Comm
	case trace.IRQ:
		if ev.Type == trace.IRQEntry {
			c.push(context{kind: KindIRQ, from: ev.Time, number: b.IRQ, name: b.Name})
		} else {
			c.lastIRQ = ev.Time
			m.pop(c, ev, func(x *context) bool { return x.kind == KindIRQ && x.number == b.IRQ })
		}
	case trace.Softirq:
		if ev.Type == trace.SoftirqEntry {
			m.softirqEntry(ev, c, int(b.Vec))
		} else {
			m.pop(c, ev, func(x *context) bool { return x.kind == KindSoftirq && x.number == int(b.Vec) })
		}
	case trace.Hrtimer:
		if ev.Type == trace.HrtimerEntry {
			c.push(context{kind: KindTimer, hr: true, from: ev.Time, function: b.Function})
		} else {
			c.lastIRQ = ev.Time
			m.pop(c, ev, func(x *context) bool { return x.kind == KindTimer && x.hr })
		}
	case trace.Timer:
		if ev.Type == trace.TimerEntry {
			c.push(context{kind: KindTimer, from: ev.Time, function: b.Function})
		} else {
			m.pop(c, ev, func(x *context) bool { return x.kind == KindTimer && !x.hr })
		}
	case trace.Block:
		m.feedBlock(ev, c, &b)
	case trace.Work:
		m.feedWork(ev, &b)
	case trace.WorkQueue:
		if len(m.waiting) < 1<<16 {
			m.waiting[b.Work] = queuedWork{at: ev.Time, tid: ev.TID, queue: b.Name}
		}
	default:
		m.feedMore(ev, c)
	}
}

// feedMore takes in the events that are not in every trace.
func (m *model) feedMore(ev *trace.Event, c *cpu) {
	t := m.task(ev.TID)
	switch b := ev.Body.(type) {
	case trace.Syscall:
		m.syscalls = true
		t.pid = b.PID
		if ev.Type == trace.SyscallEntry {
			t.calls = append(t.calls, call{from: ev.Time, to: forever, nr: int(b.NR), name: b.Name})
			return
		}
		if n := len(t.calls); n > 0 && t.calls[n-1].to == forever {
			t.calls[n-1].to = ev.Time
		} else {
			t.calls = append(t.calls, call{from: 0, to: ev.Time, nr: int(b.NR), name: b.Name})
		}
		if n := len(t.calls); t.calls[n-1].to <= m.from {
			t.calls = t.calls[:n-1]
		}
	case trace.Lock:
		if ev.Type == trace.LockBegin {
			t.locks = append(t.locks, locking{from: ev.Time, to: forever, owner: b.OwnerTID, flags: b.Flags})
		} else if n := len(t.locks); n > 0 && t.locks[n-1].to == forever {
			t.locks[n-1].to = ev.Time
			if ev.Time <= m.from {
				t.locks = t.locks[:n-1]
			}
		}
	case trace.Reclaim:
		t.effort(ev, ev.Type == trace.ReclaimBegin, Reclaim, m.from)
	case trace.Compaction:
		t.effort(ev, ev.Type == trace.CompactionBegin, Compaction, m.from)
	case trace.Net:
		m.net = true
		if ev.Type == trace.NetQueue {
			t.queued = ev.Time
		}
	case trace.Stolen:
		from := max(b.Since, ev.Time-min(b.NS, ev.Time))
		if ev.Time > m.from {
			c.overs = append(c.overs, over{from: from, to: ev.Time, tid: ev.TID, kind: KindHypervisor})
		}
	}
}

func (t *task) effort(ev *trace.Event, begins bool, cause Cause, from uint64) {
	n := len(t.reclaims)
	switch {
	case begins:
		t.reclaims = append(t.reclaims, effort{from: ev.Time, to: forever, cause: cause})
	case n > 0 && t.reclaims[n-1].to == forever:
		t.reclaims[n-1].to = ev.Time
		if ev.Time <= from {
			t.reclaims = t.reclaims[:n-1]
		}
	default:
		t.reclaims = append(t.reclaims, effort{from: 0, to: ev.Time, cause: cause})
	}
}

func (m *model) feedSwitch(ev *trace.Event, c *cpu, b *trace.Switch) {
	if ev.TID != 0 {
		m.leave(ev, c, b)
	}
	// Who has the CPU.
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		r := &c.runs[n-1]
		if r.tid != ev.TID { // a switch is missing
			r.tid = -1
		}
		r.to = ev.Time
		if ev.Time <= m.from {
			c.runs = c.runs[:n-1]
		}
	} else if ev.Time > m.from {
		c.runs = append(c.runs, run{from: c.first, to: ev.Time, tid: ev.TID, prio: b.PrevPrio})
	}
	c.runs = append(c.runs, run{from: ev.Time, to: forever, tid: b.NextTID, prio: b.NextPrio})
	c.switched = true
	if b.NextTID == 0 {
		return
	}
	next := m.task(b.NextTID)
	next.pid, next.comm, next.prio = b.NextPID, b.NextComm, b.NextPrio
	if next.last() == nil && len(next.segments) == 0 && ev.Time > m.begin {
		// Nothing was seen of it until now.
		m.turn(next, m.begin, segment{state: unknown, cpu: ev.CPU})
	}
	m.turn(next, ev.Time, segment{state: running, cpu: ev.CPU})
	for _, x := range next.held {
		x.from = ev.Time
		c.push(x)
	}
	next.held = next.held[:0]
}

// leave is the half of a switch that concerns the task that leaves.
func (m *model) leave(ev *trace.Event, c *cpu, b *trace.Switch) {
	t := m.task(ev.TID)
	t.comm, t.prio = b.PrevComm, b.PrevPrio
	switch s := t.last(); {
	case s == nil && len(t.segments) == 0:
		// It ran since before the trace, if nothing else did on this CPU.
		st := running
		if c.switched {
			st = unknown
		}
		m.turn(t, c.first, segment{state: st, cpu: ev.CPU})
	case s != nil && s.state != running:
		s.state = unknown // its switch in is missing
	}
	// Only where softirqs run in threads can a task leave amid one.
	for i := len(c.contexts) - 1; i >= 0; i-- {
		x := c.contexts[i]
		if x.kind == KindIRQ || x.hr {
			continue
		}
		c.over(m, x, ev.Time, ev.TID)
		t.held = append(t.held, x)
	}
	c.contexts = c.contexts[:0]
	slices.Reverse(t.held)
	next := segment{cpu: ev.CPU, call: b.Call}
	if b.PrevState == 0 || b.Preempted {
		next.state, next.preempted, next.throttled = runnable, true, b.Throttled
	} else {
		next.state, next.bits, next.iowait, next.frozen = blocked, b.PrevState, b.IOWait, b.Frozen
	}
	m.turn(t, ev.Time, next)
}

func (m *model) feedWake(ev *trace.Event, c *cpu, b *trace.Wake) {
	t := m.task(b.TID)
	t.pid, t.comm, t.prio = b.PID, b.Comm, b.Prio
	s := t.last()
	w := &wake{at: ev.Time, cpu: ev.CPU, tid: ev.TID}
	if n := len(c.contexts); n > 0 {
		w.ctx = c.contexts[n-1]
		w.ctx.fromIRQ = c.contexts[0].fromIRQ || c.contexts[0].kind == KindIRQ
		// A timer of the wheel expires within its softirq; what counts is the timer.
		for i := n - 1; i >= 0 && w.ctx.request == nil; i-- {
			w.ctx.request = c.contexts[i].request
		}
	} else if waker := m.tasks[ev.TID]; waker != nil && waker.work != nil {
		w.ctx = context{
			kind: KindWork, from: waker.work.start, function: waker.work.function,
			work: waker.work, request: waker.work.request,
		}
	}
	switch {
	case ev.Type == trace.SchedWakeupNew:
		m.turn(t, ev.Time, segment{state: runnable, cpu: b.TargetCPU, wake: w})
		return
	case s == nil && len(t.segments) == 0:
		if ev.Time > m.begin {
			m.turn(t, m.begin, segment{state: blocked, call: trace.CallNone, cpu: b.TargetCPU})
		}
	case s == nil || s.state == running || s.state == runnable:
		return // it was on its way
	}
	if s = t.last(); s != nil {
		s.wake = w
	}
	m.turn(t, ev.Time, segment{state: runnable, cpu: b.TargetCPU, wake: w})
}

func (m *model) softirqEntry(ev *trace.Event, c *cpu, vec int) {
	x := context{kind: KindSoftirq, from: ev.Time, number: vec, name: vectorName(vec)}
	// Right behind an interrupt it was raised there; otherwise by the task's own call, as when it sends to this
	// machine. Between the two lie some microseconds.
	const right = 20_000
	x.fromIRQ = c.lastIRQ > 0 && ev.Time-c.lastIRQ < right
	if t := m.tasks[ev.TID]; t != nil && t.queued > 0 && ev.Time-t.queued < 1_000_000 && vec == softirqNetRX {
		x.fromIRQ = false
	}
	c.push(x)
}

// maxContexts bounds nesting that only a damaged trace has.
const maxContexts = 16

func (c *cpu) push(x context) {
	if len(c.contexts) < maxContexts {
		c.contexts = append(c.contexts, x)
	}
}

// pop ends the innermost context that fits, and what is left on top of it.
func (m *model) pop(c *cpu, ev *trace.Event, fits func(*context) bool) {
	for i := len(c.contexts) - 1; i >= 0; i-- {
		if !fits(&c.contexts[i]) {
			continue
		}
		x := c.contexts[i]
		if i > 0 && x.request != nil && c.contexts[i-1].request == nil {
			c.contexts[i-1].request = x.request
		}
		c.contexts = c.contexts[:i]
		c.over(m, x, ev.Time, ev.TID)
		return
	}
}

// over notes a stretch on top of a task.
func (c *cpu) over(m *model, x context, to uint64, tid int) {
	if to <= m.from || to <= x.from || m.kept >= maxSegments {
		return
	}
	m.kept++
	c.overs = append(c.overs, over{from: x.from, to: to, tid: tid, kind: x.kind, number: x.number, name: x.name, function: x.function})
}

func (m *model) feedBlock(ev *trace.Event, c *cpu, b *trace.Block) {
	r := m.inFlight[b.RQ]
	if r == nil || (ev.Type != trace.BlockComplete && r.issue > 0 && r.sector != b.Sector) {
		r = &request{rq: b.RQ}
		if len(m.inFlight) >= 1<<17 {
			return
		}
		m.inFlight[b.RQ] = r
	}
	if ev.Type != trace.BlockComplete {
		if r.tid == 0 {
			r.tid, r.comm = ev.TID, b.Comm
		}
		r.dev, r.sector, r.bytes, r.flags = b.Dev, b.Sector, b.Bytes, b.Flags
		if ev.Type == trace.BlockInsert {
			r.insert = ev.Time
		} else {
			r.issue = ev.Time
		}
		return
	}
	delete(m.inFlight, b.RQ)
	r.complete = ev.Time
	if r.dev == 0 {
		r.dev, r.sector, r.flags = b.Dev, b.Sector, b.Flags
	}
	r.bytes = max(r.bytes, b.Bytes)
	if n := len(c.contexts); n > 0 {
		c.contexts[n-1].request = r
	} else if t := m.tasks[ev.TID]; t != nil && t.work != nil {
		t.work.request = r
	}
	if r.complete > m.from && len(m.requests) < maxSegments {
		m.requests = append(m.requests, r)
	}
}

func (m *model) feedWork(ev *trace.Event, b *trace.Work) {
	t := m.task(ev.TID)
	if ev.Type == trace.WorkStart {
		w := &work{work: b.Work, function: b.Function, start: ev.Time}
		if q, ok := m.waiting[b.Work]; ok {
			w.queued, w.queuer, w.queue = q.at, q.tid, q.queue
			delete(m.waiting, b.Work)
		}
		t.work = w
		return
	}
	if w := t.work; w != nil {
		w.end = ev.Time
		if w.end > m.from {
			t.works = append(t.works, w)
		}
		t.work = nil
	}
}
