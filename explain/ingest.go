package explain

import (
	"cmp"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// ingest adds one event to the model.
func (m *model) ingest(ev *trace.Event) {
	if ev.Type >= trace.DumpStart { // synthetic events: state dump, ends of outliers
		if ev.Type == trace.OutlierEntry || ev.Type == trace.OutlierExit {
			m.cpu(ev.CPU).noteSilence(ev.Time, false) // the CPU was not silent
		}
		return
	}
	m.eventSeen[ev.Type] = true
	if m.firstEventTime == 0 {
		m.firstEventTime, m.coveredFrom = ev.Time, ev.Time
		if len(m.names.Covered) > 0 {
			m.coveredFrom = 0
		}
		for _, list := range m.names.Covered {
			if len(list) > 0 {
				m.coveredFrom = max(m.coveredFrom, list[0].From)
			}
		}
	}
	c := m.cpu(ev.CPU)
	if !c.known {
		c.known, c.covered = true, m.names.Covered[ev.CPU]
	}
	for len(c.covered) > 0 && ev.Time > c.covered[0].To {
		m.loseCPU(c, c.covered[0].To)
		c.covered = c.covered[1:]
	}
	if c.first == 0 {
		m.firstEvent(ev, c)
	} else if ev.TID != c.current {
		m.missedSwitch(ev, c)
	}
	c.lastSeen = ev.Time
	c.noteSilence(ev.Time, ev.TID == 0)
	switch b := ev.Body.(type) {
	case trace.Switch:
		m.ingestSwitch(ev, c, &b)
	case trace.Wake:
		m.ingestWake(ev, c, &b)
	case trace.Migrate:
		m.ingestMigrate(ev, &b)
	case trace.Fork:
		t := m.task(b.ChildTID)
		t.pid, t.comm, t.born, t.parent, t.maker = b.ChildPID, b.ChildComm, ev.Time, b.ParentPID, ev.TID
	case trace.Exec:
		t := m.task(ev.TID)
		t.pid, t.comm = b.PID, b.Comm
	case trace.IRQ, trace.Softirq, trace.Hrtimer, trace.Timer, trace.Net:
		m.ingestContext(ev, c)
	case trace.ShortRuns:
		m.ingestShortRuns(ev, c, &b)
	case trace.Block:
		m.ingestBlock(ev, c, &b)
	case trace.Work:
		m.ingestWork(ev, &b)
	case trace.Idle:
		m.ingestIdle(ev, &b)
	case trace.Frequency:
		m.ingestFrequency(ev, &b)
	case trace.WorkQueue:
		if len(m.queuedWorks) < maxOpen {
			m.queuedWorks[b.Work] = m.queuedAt(ev, c, &b)
		}
	default:
		m.ingestTask(ev, c)
	}
}

// queuedAt returns what queues a work item.
func (m *model) queuedAt(ev *trace.Event, c *cpu, b *trace.WorkQueue) queuedWork {
	q := queuedWork{by: m.wakeAt(ev, c), tid: m.onBehalf(ev, c), queue: b.Name}
	if q.by.ctx == nil && b.Context != 0 {
		q.by.ctx, q.tid = m.wakeContext(&trace.Wake{Context: b.Context}), 0
	}
	return q
}

// onBehalf returns the task an event is caused by, 0 if by an interrupt.
func (m *model) onBehalf(ev *trace.Event, c *cpu) int {
	if len(c.frames) > 0 {
		return 0
	}
	return ev.TID
}

func (m *model) ingestSwitch(ev *trace.Event, c *cpu, b *trace.Switch) {
	m.endSample(ev, c, b)
	if ev.TID != 0 {
		m.switchOut(ev, c, b)
	} else {
		m.clearFrames(c, ev.Time, nil)
	}
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		r := &c.runs[n-1]
		r.to = max(ev.Time, r.from)
		switch {
		case r.tid != ev.TID || r.tid == 0:
		case r.assumed:
			r.prio = b.PrevPrio
		default:
			r.prio = min(r.prio, b.PrevPrio) // it may change while the task runs
		}
		if r.to <= m.from {
			c.runs = c.runs[:n-1]
			m.kept--
		}
	}
	m.startRun(c, ev.Time, b.NextTID, b.NextPrio)
	c.lastRequest, c.current, c.receivedAt = nil, b.NextTID, 0
	switch {
	case isSoftirqd(b.NextComm):
		c.softirqsLeft, c.softirqsBegan = true, ev.Time
	case !c.softirqsLeft || isSoftirqd(b.PrevComm) && b.PrevState != 0:
		c.softirqsLeft = false
		c.protocol.at, c.letOut.at = 0, 0
	}
	if b.NextTID != 0 {
		m.switchIn(ev, c, b)
	}
}

// switchOut handles the previous task of a switch.
func (m *model) switchOut(ev *trace.Event, c *cpu, b *trace.Switch) {
	t := m.task(ev.TID)
	t.comm, t.prio = b.PrevComm, b.PrevPrio
	switch s := t.last(); {
	case len(t.segments) == 0:
		m.transition(t, c.first, segment{state: unknown, cpu: int32(ev.CPU)}) // its switch in is missing
	case s != nil && s.state != running:
		s.state = unknown
	}
	m.clearFrames(c, ev.Time, t)
	next := segment{cpu: int32(ev.CPU), prio: int16(b.PrevPrio), call: int16(b.Call)}
	if b.PrevState == 0 || b.Preempted {
		next.state, next.preempted, next.throttled = runnable, true, b.Throttled
		if b.Throttled && m.reserve() {
			c.quota = append(c.quota, quota{from: ev.Time, to: forever, tid: t.tid, pid: t.pid})
		}
	} else {
		next.state, next.bits, next.frozen, next.iowait, next.futex = blocked, b.PrevState, b.Frozen, b.IOWait, b.Futex
		if t.slept = outsideCalls; b.Call != trace.CallNone {
			t.slept, m.callsOfSwitches = inCall, true
		}
	}
	m.transition(t, ev.Time, next)
	if n := m.thread(t); n != nil {
		n.leave(m, ev.Time, b, next.state == blocked)
	}
	if next.bits&taskDead != 0 {
		m.end(t.tid)
	}
}

// earlyWakeLimit bounds how long a wake-up may precede the switch out of a task that is
// about to sleep.
const earlyWakeLimit = 1_000_000

// maxQuotas bounds how many of the latest throttled intervals are searched.
const maxQuotas = 64

// switchIn handles the next task of a switch.
func (m *model) switchIn(ev *trace.Event, c *cpu, b *trace.Switch) {
	t := m.task(b.NextTID)
	t.pid, t.comm, t.prio = b.NextPID, b.NextComm, b.NextPrio
	if n := m.thread(t); n != nil {
		n.enter(m, t.tid, ev.Time)
	}
	switch s := t.last(); {
	case len(t.segments) == 0:
		// First event of this task: it has been runnable since coverage began.
		if ev.Time > m.coveredFrom {
			m.transition(t, m.coveredFrom, segment{state: runnable, cpu: int32(ev.CPU), prio: int16(b.NextPrio)})
		}
	case s != nil && s.state == running: // its switch out is missing
		m.movedUnseen(t, s)
	case s != nil && s.state == blocked && t.earlyWake != nil && t.earlyWake.at+earlyWakeLimit >= s.from:
		s.state, s.wake = runnable, t.earlyWake
	}
	t.earlyWake = nil
	m.transition(t, ev.Time, segment{state: running, cpu: int32(ev.CPU), prio: int16(b.NextPrio)})
	for i := len(c.quota) - 1; i >= max(0, len(c.quota)-maxQuotas); i-- {
		if q := &c.quota[i]; q.tid == t.tid && q.to == forever {
			q.to = ev.Time
		}
	}
	for _, x := range t.carried {
		m.push(c, ev.Time, x)
	}
	t.carried = nil
}

func (m *model) ingestWake(ev *trace.Event, c *cpu, b *trace.Wake) {
	t := m.task(b.TID)
	t.pid, t.comm, t.prio = b.PID, b.Comm, b.Prio
	if isSoftirqd(b.Comm) && b.TargetCPU == ev.CPU {
		c.softirqsLeft = true
	}
	s := t.last()
	if s != nil && s.state == runnable {
		return
	}
	w := m.wakeAt(ev, c)
	w.local, w.signal, w.thaw = b.Local(), b.Signal(), b.Thaw()
	if w.ctx == nil {
		if w.ctx = m.wakeContext(b); w.ctx == nil {
			c.taskAt = ev.Time
		} else if w.ctx.endsRequests() && c.requestDone(ev.Time) {
			w.request, w.near = c.lastRequest, true
		} else {
			w.request, w.near = nil, false // that of the task below it
		}
		if w.ctx != nil && w.ctx.kind == KindSoftirq && w.ctx.number == softirqNetRX && c.receivedAt > 0 && ev.Time-c.receivedAt < othersWakeLimit {
			w.device, w.sender = c.received.device, c.received.sender
		}
	}
	if w.near && !m.concerns(w, ev.Time, t, s) {
		w.request, w.near = nil, false
	}
	if w.protocol = c.afterProtocol(w); w.protocol != nil {
		w.local = false // whom the timer interrupted sent nothing
	}
	from := ev.Time
	if s != nil {
		from = s.from
	}
	w.letOut = c.afterLetOut(w, from)
	if w.letOut == waitPacing && w.local && s != nil && m.usuallyBy(t, s, w.tid) {
		w.letOut = waitAny // it was for others, to whom that task sends as well
	}
	w.local = w.local && w.letOut == waitAny
	next := segment{state: runnable, cpu: int32(b.TargetCPU), prio: int16(b.Prio), wake: w}
	switch {
	case ev.Type == trace.SchedWakeupNew:
		t.born = cmp.Or(t.born, ev.Time)
		if s == nil || s.state != running {
			m.transition(t, ev.Time, next)
		}
		return
	case s != nil && s.state == running:
		t.earlyWake = w
		if w.ctx == nil && w.tid != 0 && w.at > m.from && m.reserve() {
			t.letGo = append(t.letGo, w)
		}
		return
	case len(t.segments) == 0 && ev.Time > m.coveredFrom:
		m.transition(t, m.coveredFrom, segment{state: blocked, call: trace.CallNone, cpu: int32(b.TargetCPU)})
	}
	if s = t.last(); s != nil && s.state == unknown {
		s.state, s.call = blocked, trace.CallNone // whatever happened, it ended up asleep
	}
	if s != nil && s.state == blocked {
		s.wake = w
		m.guessSender(t, s, w)
		m.noteBurst(c, ev, s)
		m.noteEnd(t, s, w)
	}
	if w.ctx == nil && ev.TID != 0 {
		if n := len(t.wakers); n > 0 && t.wakers[n-1].at <= m.from {
			t.wakers[n-1] = wakerAt{ev.Time, ev.TID}
		} else if m.reserve() {
			t.wakers = append(t.wakers, wakerAt{ev.Time, ev.TID})
		}
	}
	m.transition(t, ev.Time, next)
	if n := m.thread(t); n != nil {
		n.woken = ev.Time
	}
}

// wakeAt returns what causes the wake-up of an event.
func (m *model) wakeAt(ev *trace.Event, c *cpu) *wake {
	if len(m.wakes) == cap(m.wakes) {
		m.wakes = make([]wake, 0, 512) // allocate in blocks
	}
	m.wakes = append(m.wakes, wake{at: ev.Time, cpu: ev.CPU, tid: ev.TID})
	w := &m.wakes[len(m.wakes)-1]
	n := len(c.frames)
	if n == 0 {
		if t := m.tasks[ev.TID]; t != nil {
			if t.work != nil && m.gapIn(t.work.start, ev.Time) < ev.Time {
				t.work = nil // its end may be missing
			}
			w.work = t.work
			if c.requestDone(ev.Time) && m.endsRequests(t) {
				w.request, w.near = c.lastRequest, true
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
			w.sender, w.device = f.sender, f.device
		}
	}
	return w
}

func (m *model) ingestMigrate(ev *trace.Event, b *trace.Migrate) {
	t := m.task(b.TID)
	switch s := t.last(); {
	case len(t.segments) == 0 && ev.Time > m.coveredFrom: // its first event: it has been runnable since coverage began
		t.comm, t.prio = b.Comm, b.Prio
		m.transition(t, m.coveredFrom, segment{state: runnable, cpu: int32(b.OrigCPU), prio: int16(b.Prio)})
		m.transition(t, ev.Time, segment{state: runnable, cpu: int32(b.DestCPU), prio: int16(b.Prio)})
	case s == nil || int(s.cpu) == b.DestCPU:
	case s.state == runnable:
		next := *s
		next.cpu = int32(b.DestCPU)
		m.transition(t, ev.Time, next)
	case s.state == blocked:
		s.cpu = int32(b.DestCPU)
	}
}

func (m *model) ingestBlock(ev *trace.Event, c *cpu, b *trace.Block) {
	r := m.inFlight[b.RQ]
	if r == nil || ev.Type != trace.BlockComplete && r.issue > 0 && r.sector != b.Sector {
		if len(m.inFlight) >= maxOpen {
			m.full = true
			return
		}
		r = &request{rq: b.RQ}
		m.inFlight[b.RQ] = r
	}
	if ev.Type != trace.BlockComplete {
		if r.tid == 0 {
			r.tid, r.comm = m.onBehalf(ev, c), b.Comm
			if t := m.tasks[r.tid]; t != nil {
				r.by = t.work
			}
		}
		r.dev, r.sector, r.bytes, r.flags = b.Dev, b.Sector, b.Bytes, b.Flags
		switch {
		case ev.Type != trace.BlockInsert:
			r.issue, r.last = cmp.Or(r.issue, ev.Time), ev.Time
		case r.issue == 0:
			r.insert = ev.Time
		}
		return
	}
	if b.Status == 0 && b.Bytes > 0 && b.Bytes < r.bytes {
		r.bytes -= b.Bytes // partial completion
		r.sector += uint64(b.Bytes) >> 9
		return
	}
	if r.started() > 0 && b.Bytes > 0 && b.Bytes == r.bytes && b.Sector != r.sector {
		r = &request{rq: b.RQ} // another one at that address, whose beginning is missing
	}
	delete(m.inFlight, b.RQ)
	r.complete = ev.Time
	if r.started() == 0 {
		r.dev, r.sector, r.flags, r.comm = b.Dev, b.Sector, b.Flags, b.Comm
	}
	r.bytes = max(r.bytes, b.Bytes)
	m.history.noteRequest(r)
	if len(m.lastDone) < maxOpen {
		r.lastDone = m.lastDone[r.dev]
		m.lastDone[r.dev] = ev.Time
	}
	if n := len(c.frames); n > 0 {
		c.frames[n-1].request = r
	} else {
		c.lastRequest, c.lastRequestAt = r, ev.Time
	}
	if r.complete > m.from && m.reserve() {
		m.requests = appendGrow(m.requests, r)
	}
}

func (m *model) ingestWork(ev *trace.Event, b *trace.Work) {
	t := m.task(ev.TID)
	if ev.Type == trace.WorkStart {
		x := &work{work: b.Work, function: b.Function, start: ev.Time, end: forever, worker: ev.TID}
		if q, ok := m.queuedWorks[b.Work]; ok {
			x.queued, x.by, x.queuer, x.queue = q.by.at, q.by, q.tid, q.queue
			delete(m.queuedWorks, b.Work)
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
	m.history.noteWork(x)
	if x.end <= m.from || !m.reserve() {
		return
	}
	t.works = append(t.works, x)
	if x.queue != "" {
		m.queues[x.queue] = append(m.queues[x.queue], x)
	}
}
