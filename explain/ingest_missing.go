package explain

import "github.com/tailcam/tailcam/snapshot/trace"

// lose forgets what a CPU did: its records from here on are missing.
func (m *model) lose(c *cpu, at uint64) {
	if c.first == 0 {
		return
	}
	c.first = 0
	m.leaveUnseen(c, at)
}

// nobody is c.current when it is not known.
const nobody = -1

// leaveUnseen ends what a CPU's current task does there, without saying what it
// did next, nor who came after it.
func (m *model) leaveUnseen(c *cpu, at uint64) {
	m.clearFrames(c, at, nil)
	c.done = nil
	if t := m.tasks[c.current]; t != nil {
		if s := t.last(); s != nil && s.state == running && m.near(int(s.cpu)) == c {
			m.turn(t, at, segment{state: unknown, cpu: s.cpu})
		}
	}
	c.current = nobody
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		c.runs[n-1].to = max(at, c.runs[n-1].from)
		at = c.runs[n-1].to
	}
	if m.keep() {
		c.runs = add(c.runs, run{from: at, to: forever, tid: nobody})
	}
}

// brief is how long a switch that the trace lacks may leave unexplained.
const brief = 20_000

// missed is called when a CPU runs another task than the trace says: the kernel
// leaves out switches at times. Between the last event of the one and the first
// of the other nothing is known; the rest is.
func (m *model) missed(ev *trace.Event, c *cpu) {
	at := c.seen
	if ev.Time-min(at, ev.Time) < brief {
		at = ev.Time
	}
	if c.current != nobody {
		m.leaveUnseen(c, at)
	}
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		c.runs[n-1].to = max(ev.Time, c.runs[n-1].from)
	}
	prio := 120
	if t := m.tasks[ev.TID]; t != nil {
		prio = t.prio
	}
	if b, ok := ev.Body.(trace.Switch); ok {
		prio = b.PrevPrio
	}
	if m.keep() {
		c.runs = add(c.runs, run{from: ev.Time, to: forever, tid: ev.TID, prio: prio})
	}
	c.current = ev.TID
	if ev.TID == 0 {
		return
	}
	t := m.task(ev.TID)
	s := t.last()
	if s != nil && s.state == running {
		m.vanish(t, s)
		s = t.last()
	}
	if s != nil && s.state == blocked && at < ev.Time {
		m.turn(t, at, segment{state: unknown, cpu: int32(ev.CPU)}) // its wake-up is missing, too
	}
	m.turn(t, ev.Time, segment{state: running, cpu: int32(ev.CPU), prio: int16(prio)})
}

// vanish ends the run of a task that turns up elsewhere.
func (m *model) vanish(t *task, s *segment) {
	c := m.near(int(s.cpu))
	if c == nil || c.current != t.tid {
		s.state = unknown
		return
	}
	m.leaveUnseen(c, max(c.seen, s.from))
}

// found notes what a CPU was found doing at its first event.
func (m *model) found(ev *trace.Event, c *cpu) {
	c.first = ev.Time
	if len(c.covered) > 0 {
		c.first = min(c.first, c.covered[0].From)
	}
	if n := len(c.runs); n > 0 && c.runs[n-1].to == forever {
		c.runs[n-1].to = max(c.first, c.runs[n-1].from)
		c.first = c.runs[n-1].to
	}
	prio := 120
	if b, ok := ev.Body.(trace.Switch); ok {
		prio = b.PrevPrio
	}
	if m.keep() {
		c.runs = add(c.runs, run{from: c.first, to: forever, tid: ev.TID, prio: prio})
	}
	c.current = ev.TID
	if ev.TID == 0 {
		return
	}
	t := m.task(ev.TID)
	if s := t.last(); s == nil || s.state == unknown {
		m.turn(t, c.first, segment{state: running, cpu: int32(ev.CPU)})
	}
}
