package explain

import "github.com/tailcam/tailcam/snapshot/trace"

// feed takes in one event.
func (m *model) feed(ev *trace.Event) {
	if ev.Type >= trace.DumpStart { // of no record: the state dump, the ends of outliers
		if ev.Type == trace.OutlierEntry || ev.Type == trace.OutlierExit {
			m.cpu(ev.CPU).quiet(ev.Time, false) // something was there
		}
		return
	}
	m.seen[ev.Type] = true
	if m.begin == 0 {
		m.begin, m.whole = ev.Time, ev.Time
		if len(m.names.Covered) > 0 {
			m.whole = 0
		}
		for _, list := range m.names.Covered {
			if len(list) > 0 {
				m.whole = max(m.whole, list[0].From)
			}
		}
	}
	c := m.cpu(ev.CPU)
	if !c.known {
		c.known, c.covered = true, m.names.Covered[ev.CPU]
	}
	for len(c.covered) > 0 && ev.Time > c.covered[0].To {
		m.lose(c, c.covered[0].To)
		c.covered = c.covered[1:]
	}
	if c.first == 0 {
		m.found(ev, c)
	} else if ev.TID != c.current {
		m.missed(ev, c)
	}
	c.seen = ev.Time
	c.quiet(ev.Time, ev.TID == 0)
	switch b := ev.Body.(type) {
	case trace.Switch:
		m.feedSwitch(ev, c, &b)
	case trace.Wake:
		m.feedWake(ev, c, &b)
	case trace.Migrate:
		m.feedMigrate(ev, &b)
	case trace.Fork:
		t := m.task(b.ChildTID)
		t.pid, t.comm = b.ChildPID, b.ChildComm
	case trace.Exec:
		t := m.task(ev.TID)
		t.pid, t.comm = b.PID, b.Comm
	case trace.IRQ, trace.Softirq, trace.Hrtimer, trace.Timer, trace.Net:
		m.feedContext(ev, c)
	case trace.Block:
		m.feedBlock(ev, c, &b)
	case trace.Work:
		m.feedWork(ev, &b)
	case trace.WorkQueue:
		if len(m.waiting) < maxPending {
			m.waiting[b.Work] = queuedWork{by: m.wakeAt(ev, c), tid: m.onBehalf(ev, c), queue: b.Name}
		}
	default:
		m.feedTask(ev, c)
	}
}

// onBehalf is the task that does something: none if an interrupt does.
func (m *model) onBehalf(ev *trace.Event, c *cpu) int {
	if len(c.frames) > 0 {
		return 0
	}
	return ev.TID
}

func (m *model) feedSwitch(ev *trace.Event, c *cpu, b *trace.Switch) {
	if ev.TID != 0 {
		m.leave(ev, c, b)
	} else {
		m.clearFrames(c, ev.Time, nil)
	}
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		r := &c.runs[n-1]
		r.to = max(ev.Time, r.from)
		if r.to <= m.from {
			c.runs = c.runs[:n-1]
			m.kept--
		}
	}
	if m.keep() {
		c.runs = add(c.runs, run{from: ev.Time, to: forever, tid: b.NextTID, prio: b.NextPrio})
	}
	c.done, c.current = nil, b.NextTID
	if b.NextTID != 0 {
		m.arrive(ev, c, b)
	}
}

// leave is the half of a switch that concerns the task that leaves.
func (m *model) leave(ev *trace.Event, c *cpu, b *trace.Switch) {
	t := m.task(ev.TID)
	t.comm, t.prio = b.PrevComm, b.PrevPrio
	switch s := t.last(); {
	case len(t.segments) == 0:
		m.turn(t, c.first, segment{state: unknown, cpu: int32(ev.CPU)}) // its switch in is missing
	case s != nil && s.state != running:
		s.state = unknown
	}
	m.clearFrames(c, ev.Time, t)
	next := segment{cpu: int32(ev.CPU), prio: int16(b.PrevPrio), call: int16(b.Call)}
	if b.PrevState == 0 || b.Preempted {
		next.state, next.preempted, next.throttled = runnable, true, b.Throttled
		if b.Throttled && m.keep() {
			c.quota = append(c.quota, quota{from: ev.Time, to: forever, tid: t.tid, pid: t.pid})
		}
	} else {
		next.state, next.bits, next.frozen, next.iowait = blocked, b.PrevState, b.Frozen, b.IOWait
	}
	m.turn(t, ev.Time, next)
}

// earlyWake is how long before a task has left its CPU its wake-up may come:
// it was on its way to sleep.
const earlyWake = 1_000_000

// maxQuotas is how many stretches without quota are looked at, the latest first.
const maxQuotas = 64

// arrive is the half that concerns the task that gets the CPU.
func (m *model) arrive(ev *trace.Event, c *cpu, b *trace.Switch) {
	t := m.task(b.NextTID)
	t.pid, t.comm, t.prio = b.NextPID, b.NextComm, b.NextPrio
	switch s := t.last(); {
	case len(t.segments) == 0:
		// Nothing was seen of it until now, not even a wake-up.
		if ev.Time > m.whole {
			m.turn(t, m.whole, segment{state: runnable, cpu: int32(ev.CPU), prio: int16(b.NextPrio)})
		}
	case s != nil && s.state == running: // its switch out is missing
		m.vanish(t, s)
	case s != nil && s.state == blocked && t.early != nil && t.early.at+earlyWake >= s.from:
		s.state, s.wake = runnable, t.early
	}
	t.early = nil
	m.turn(t, ev.Time, segment{state: running, cpu: int32(ev.CPU), prio: int16(b.NextPrio)})
	for i := len(c.quota) - 1; i >= max(0, len(c.quota)-maxQuotas); i-- {
		if q := &c.quota[i]; q.tid == t.tid && q.to == forever {
			q.to = ev.Time
		}
	}
	for _, x := range t.held {
		m.push(c, ev.Time, x)
	}
	t.held = nil
}

func (m *model) feedWake(ev *trace.Event, c *cpu, b *trace.Wake) {
	t := m.task(b.TID)
	t.pid, t.comm, t.prio = b.PID, b.Comm, b.Prio
	s := t.last()
	if s != nil && s.state == runnable {
		return
	}
	w := m.wakeAt(ev, c)
	next := segment{state: runnable, cpu: int32(b.TargetCPU), prio: int16(b.Prio), wake: w}
	switch {
	case ev.Type == trace.SchedWakeupNew:
		if s == nil || s.state != running {
			m.turn(t, ev.Time, next)
		}
		return
	case s != nil && s.state == running:
		t.early = w
		return
	case len(t.segments) == 0 && ev.Time > m.whole:
		m.turn(t, m.whole, segment{state: blocked, call: trace.CallNone, cpu: int32(b.TargetCPU)})
	}
	if s = t.last(); s != nil && s.state == unknown {
		s.state, s.call = blocked, trace.CallNone // whatever it did: it was asleep in the end
	}
	if s != nil && s.state == blocked {
		s.wake = w
	}
	if w.ctx == nil && ev.TID != 0 {
		if n := len(t.wakers); n > 0 && t.wakers[n-1].at <= m.from {
			t.wakers[n-1] = tick{ev.Time, ev.TID}
		} else if m.keep() {
			t.wakers = append(t.wakers, tick{ev.Time, ev.TID})
		}
	}
	m.turn(t, ev.Time, next)
}

// justDone is how long after a request's completion by a task a wake-up by it
// may be due to that.
const justDone = 100_000

// wakeAt says what wakes a task at an event.
func (m *model) wakeAt(ev *trace.Event, c *cpu) *wake {
	if len(m.wakes) == cap(m.wakes) {
		m.wakes = make([]wake, 0, 512) // one allocation for many
	}
	m.wakes = append(m.wakes, wake{at: ev.Time, cpu: ev.CPU, tid: ev.TID})
	w := &m.wakes[len(m.wakes)-1]
	n := len(c.frames)
	if n == 0 {
		if t := m.tasks[ev.TID]; t != nil {
			w.work = t.work
			if c.done != nil && ev.Time-c.doneAt < justDone && (t.work != nil || m.kernelThread(ev.TID)) {
				w.request = c.done
			}
		}
		return w
	}
	w.ctx = c.frames[n-1].context
	for i := n - 1; i >= 0; i-- {
		f := &c.frames[i]
		if w.request == nil {
			w.request = f.request
		}
		if f.kind == KindSoftirq && (f.number == softirqNetRX || f.number == softirqNetTX) && w.device == "" {
			w.sender, w.device, w.remote = f.sender, f.device, f.remote
		}
	}
	return w
}

func (m *model) feedMigrate(ev *trace.Event, b *trace.Migrate) {
	t := m.task(b.TID)
	switch s := t.last(); {
	case s == nil || int(s.cpu) == b.DestCPU:
	case s.state == runnable:
		next := *s
		next.cpu = int32(b.DestCPU)
		m.turn(t, ev.Time, next)
	case s.state == blocked:
		s.cpu = int32(b.DestCPU)
	}
}

func (m *model) feedBlock(ev *trace.Event, c *cpu, b *trace.Block) {
	r := m.inFlight[b.RQ]
	if r == nil || ev.Type != trace.BlockComplete && r.issue > 0 && r.sector != b.Sector {
		if len(m.inFlight) >= maxPending {
			m.full = true
			return
		}
		r = &request{rq: b.RQ}
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
	if b.Status == 0 && b.Bytes > 0 && b.Bytes < r.bytes {
		r.bytes -= b.Bytes // a part of it
		return
	}
	delete(m.inFlight, b.RQ)
	r.complete = ev.Time
	if r.begin() == 0 {
		r.dev, r.sector, r.flags, r.comm = b.Dev, b.Sector, b.Flags, b.Comm
	}
	r.bytes = max(r.bytes, b.Bytes)
	if len(m.lastDone) < maxPending {
		r.lastDone = m.lastDone[r.dev]
		m.lastDone[r.dev] = ev.Time
	}
	if n := len(c.frames); n > 0 {
		c.frames[n-1].request = r
	} else {
		c.done, c.doneAt = r, ev.Time
	}
	if r.complete > m.from && m.keep() {
		m.requests = add(m.requests, r)
	}
}

func (m *model) feedWork(ev *trace.Event, b *trace.Work) {
	t := m.task(ev.TID)
	if ev.Type == trace.WorkStart {
		x := &work{work: b.Work, function: b.Function, start: ev.Time, end: forever, worker: ev.TID}
		if q, ok := m.waiting[b.Work]; ok {
			x.queued, x.by, x.queuer, x.queue = q.by.at, q.by, q.tid, q.queue
			delete(m.waiting, b.Work)
		}
		t.work = x
		return
	}
	if t.work != nil {
		m.endWork(t, ev.Time)
	}
}

func (m *model) endWork(t *task, at uint64) {
	x := t.work
	t.work = nil
	x.end = at
	if x.end <= m.from || !m.keep() {
		return
	}
	t.works = append(t.works, x)
	if x.queue != "" {
		m.queues[x.queue] = append(m.queues[x.queue], x)
	}
}
