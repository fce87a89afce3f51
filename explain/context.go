package explain

import (
	"slices"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Softirqs, by the kernel's numbers.
const (
	softirqTimer   = 1
	softirqNetTX   = 2
	softirqNetRX   = 3
	softirqBlock   = 4
	softirqHrtimer = 8
)

// raised is how soon after an interrupt handler the softirq runs that it raised.
const raised = 20_000

// feedContext takes in what begins and ends on top of tasks.
func (m *model) feedContext(ev *trace.Event, c *cpu) {
	switch b := ev.Body.(type) {
	case trace.IRQ:
		if ev.Type == trace.IRQEntry {
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindIRQ, number: b.IRQ, name: b.Name})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindIRQ && f.number == b.IRQ })
			c.irqEnd = ev.Time
		}
	case trace.Softirq:
		vec := int(b.Vec)
		if ev.Type == trace.SoftirqEntry {
			f := frame{context: m.context(context{kind: KindSoftirq, number: vec, name: linux.Softirq(b.Vec, "?")})}
			f.remote = c.irqEnd > 0 && ev.Time-c.irqEnd < raised
			m.push(c, ev.Time, f)
		} else if f, ok := m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindSoftirq && f.number == vec }); ok && f.remote {
			c.irqEnd = ev.Time // the next one was raised by the same interrupt
		} else {
			c.irqEnd = 0
		}
	case trace.Hrtimer:
		if ev.Type == trace.HrtimerEntry {
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindTimer, hr: true, function: b.Function})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindTimer && f.hr })
			c.irqEnd = ev.Time
		}
	case trace.Timer:
		if ev.Type == trace.TimerEntry {
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindTimer, function: b.Function})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindTimer && !f.hr })
		}
	case trace.Net:
		m.feedNet(ev, c, &b)
	}
}

// context makes each context once.
func (m *model) context(x context) *context {
	key := contextKey{kind: x.kind[0], hr: x.hr, number: x.number, function: x.function}
	if c := m.contexts[key]; c != nil && c.name == x.name {
		return c
	}
	if len(m.contexts) < maxPending {
		m.contexts[key] = &x
	}
	return &x
}

// feedNet follows packets through this machine, by their addresses.
func (m *model) feedNet(ev *trace.Event, c *cpu, b *trace.Net) {
	if ev.Type == trace.NetQueue {
		p := packet{at: ev.Time, sender: ev.TID}
		for i := range c.frames {
			p.sender = 0
			if c.frames[i].sender != 0 {
				p.sender = c.frames[i].sender // passed on
			}
		}
		if len(m.packets) >= maxPending {
			clear(m.packets)
		}
		m.packets[b.SKB] = p
		return
	}
	for i := len(c.frames) - 1; i >= 0; i-- {
		f := &c.frames[i]
		if f.kind != KindSoftirq {
			continue
		}
		f.device, f.sender = b.Dev, 0
		if p, ok := m.packets[b.SKB]; ok && ev.Time-p.at < flight {
			f.sender = p.sender
		}
		return
	}
}

// flight is how long a packet may be on its way through this machine.
const flight = 1_000_000_000

// push begins a context on top of what a CPU does.
func (m *model) push(c *cpu, at uint64, f frame) {
	if len(c.frames) >= maxContexts {
		return
	}
	m.cover(c, at)
	f.request = nil
	c.frames = append(c.frames, f)
}

// pop ends the innermost context that fits, and what is left on top of it.
func (m *model) pop(c *cpu, at uint64, fits func(*frame) bool) (frame, bool) {
	for i := len(c.frames) - 1; i >= 0; i-- {
		if !fits(&c.frames[i]) {
			continue
		}
		m.cover(c, at)
		f := c.frames[i]
		if i > 0 && f.request != nil && c.frames[i-1].request == nil && f.kind == KindTimer {
			c.frames[i-1].request = f.request
		}
		c.frames = c.frames[:i]
		return f, true
	}
	return frame{}, false
}

// cover notes what the innermost context has taken since the last change.
func (m *model) cover(c *cpu, at uint64) {
	from := max(c.change, m.from)
	c.change = at
	if n := len(c.frames); n > 0 && at > from && m.keep() {
		c.overs = add(c.overs, over{from: from, to: at, context: c.frames[n-1].context})
	}
}

// clearFrames is called when a CPU leaves a task, or must be in one. Only
// softirqs of real-time kernels go with their task; t may be nil.
func (m *model) clearFrames(c *cpu, at uint64, t *task) {
	c.irqEnd = 0
	if len(c.frames) == 0 {
		return
	}
	m.cover(c, at)
	if t != nil {
		for _, f := range c.frames {
			if f.kind != KindIRQ && !f.hr {
				t.held = append(t.held, f)
			}
		}
	}
	c.frames = c.frames[:0]
}

// finish ends what is open at the end of the trace.
func (m *model) finish() {
	for _, c := range m.cpus {
		if len(c.covered) > 0 && c.covered[0].To < m.to {
			m.lose(c, c.covered[0].To)
		}
	}
	for _, t := range m.tasks {
		if s := t.last(); s != nil {
			s.to = max(m.to, s.from)
		}
		if t.work != nil {
			m.endWork(t, m.to)
		}
		for i := range t.calls {
			t.calls[i].to = min(t.calls[i].to, m.to)
		}
		for i := range t.guests {
			t.guests[i].to = min(t.guests[i].to, m.to)
		}
		for i := range t.locks {
			t.locks[i].to = min(t.locks[i].to, m.to)
		}
		for i := range t.efforts {
			t.efforts[i].to = min(t.efforts[i].to, m.to)
		}
	}
	for _, c := range m.cpus {
		if i := len(c.runs); i > 0 && c.runs[i-1].to == forever {
			c.runs[i-1].to = max(m.to, c.runs[i-1].from)
		}
		m.cover(c, m.to)
		for i := range c.quota {
			c.quota[i].to = min(c.quota[i].to, m.to)
		}
		c.overs = lay(c.overs, c.steals)
	}
	for n, list := range m.names.Covered {
		if m.cpus[n] != nil || len(m.cpus) >= maxCPUs {
			continue
		}
		c := &cpu{} // nothing happened there
		for _, s := range list {
			if s.From < s.To && m.keep() {
				c.runs = append(c.runs, run{from: s.From, to: s.To})
			}
		}
		m.cpus[n] = c
	}
}

// lay puts what the hypervisor took over what the CPU believes to have done.
// Both are in the order of time, as far as the trace is.
func lay(overs, steals []over) []over {
	if len(steals) == 0 {
		return overs
	}
	out := make([]over, 0, len(overs)+2*len(steals))
	var end uint64
	add := func(o over) {
		o.from = max(o.from, end)
		if o.from < o.to {
			out = append(out, o)
			end = o.to
		}
	}
	for _, s := range steals {
		for len(overs) > 0 && overs[0].from < s.from {
			o := overs[0]
			o.to = min(o.to, s.from)
			add(o)
			if overs[0].to > s.to {
				overs[0].from = s.to
				break
			}
			overs = overs[1:]
		}
		add(s)
	}
	for _, o := range overs {
		add(o)
	}
	return slices.Clip(out)
}
