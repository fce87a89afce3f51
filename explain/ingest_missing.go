package explain

import "github.com/tailcam/tailcam/snapshot/trace"

// loseCPU marks a CPU's records as missing from now on.
func (m *model) loseCPU(c *cpu, at uint64) {
	if c.first == 0 {
		return
	}
	c.first = 0
	if m.history != nil {
		m.history.holes++
	}
	m.leaveUnknown(c, at)
}

// unknownTask is the current task of a CPU if it is not known.
const unknownTask = -1

// leaveUnknown ends the run of a CPU's current task without knowing what follows.
func (m *model) leaveUnknown(c *cpu, at uint64) {
	m.clearFrames(c, at, nil)
	c.lastRequest = nil
	if t := m.tasks[c.current]; t != nil {
		if s := t.last(); s != nil && s.state == running && m.knownCPU(int(s.cpu)) == c {
			m.transition(t, at, segment{state: unknown, cpu: s.cpu})
			c.left = t.tid
		}
	}
	c.current = unknownTask
	m.startRun(c, c.endRun(at), unknownTask, 0)
}

// hasLeft notes that the task that left a CPU unseen is no longer there: before, it may have run.
func (m *model) hasLeft(c *cpu, at uint64, current int) {
	if t := m.tasks[c.left]; t != nil && c.left != current {
		if s := t.last(); s != nil && s.state == unknown && m.knownCPU(int(s.cpu)) == c {
			m.transition(t, at, segment{state: unknown, cpu: s.cpu})
		}
	}
	c.left = 0
}

// endRun ends the open run of a CPU, if any, and returns when it ended.
func (c *cpu) endRun(at uint64) uint64 {
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		at = max(at, c.runs[n-1].from)
		c.runs[n-1].to = at
	}
	return at
}

func (m *model) startRun(c *cpu, at uint64, tid, prio int) {
	if m.reserve() {
		c.runs = appendGrow(c.runs, run{from: at, to: forever, tid: tid, prio: prio})
	}
}

// assumePrio notes that the priority of the open run is the usual one for want of a better.
func (c *cpu) assumePrio() {
	if n := len(c.runs); n > 0 {
		c.runs[n-1].assumed = true
	}
}

// unseenSwitchLimit is the gap around a missing switch that is ignored.
const unseenSwitchLimit = 20_000

// missedSwitch handles an event of another task than the current one: the kernel drops
// switches at times. The time between the last event of the one and the first of the
// other is unknown.
func (m *model) missedSwitch(ev *trace.Event, c *cpu) {
	at := c.lastSeen
	if ev.Time-min(at, ev.Time) < unseenSwitchLimit {
		at = ev.Time
	}
	if c.current != unknownTask {
		m.leaveUnknown(c, at)
	}
	m.hasLeft(c, ev.Time, ev.TID)
	c.endRun(ev.Time)
	prio := 120
	if t := m.tasks[ev.TID]; t != nil {
		prio = t.prio
	}
	if b, ok := ev.Body.(trace.Switch); ok {
		prio = b.PrevPrio
	}
	m.startRun(c, ev.Time, ev.TID, prio)
	c.assumePrio()
	c.current = ev.TID
	if ev.TID == 0 {
		return
	}
	t := m.task(ev.TID)
	t.past.forget()
	s := t.last()
	if s != nil && s.state == running {
		m.movedUnseen(t, s)
		s = t.last()
	}
	if s != nil && s.state == blocked && at < ev.Time {
		m.transition(t, at, segment{state: unknown, cpu: int32(ev.CPU)}) // its wake-up is missing as well
	}
	m.transition(t, ev.Time, segment{state: running, cpu: int32(ev.CPU), prio: int16(prio)})
}

// movedUnseen ends the run of a task that appears on another CPU.
func (m *model) movedUnseen(t *task, s *segment) {
	c := m.knownCPU(int(s.cpu))
	if c == nil || c.current != t.tid {
		s.state = unknown
		return
	}
	m.leaveUnknown(c, max(c.lastSeen, s.from))
}

// firstEvent sets the state of a CPU from its first event.
func (m *model) firstEvent(ev *trace.Event, c *cpu) {
	c.first = ev.Time
	if len(c.covered) > 0 {
		c.first = min(c.first, c.covered[0].From)
	}
	c.first = c.endRun(c.first)
	prio := 120
	if b, ok := ev.Body.(trace.Switch); ok {
		prio = b.PrevPrio
	}
	m.startRun(c, c.first, ev.TID, prio)
	c.assumePrio()
	c.current = ev.TID
	m.hasLeft(c, c.first, ev.TID)
	if ev.TID == 0 {
		return
	}
	t := m.task(ev.TID)
	if s := t.last(); s == nil || s.state == unknown {
		m.transition(t, c.first, segment{state: running, cpu: int32(ev.CPU)})
	}
}
