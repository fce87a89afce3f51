package explain

import (
	"slices"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Softirq numbers of the kernel.
const (
	softirqTimer   = 1
	softirqNetTX   = 2
	softirqNetRX   = 3
	softirqBlock   = 4
	softirqHrtimer = 8
)

// ingestContext handles entry and exit of interrupts, softirqs and timers.
func (m *model) ingestContext(ev *trace.Event, c *cpu) {
	switch b := ev.Body.(type) {
	case trace.IRQ:
		if ev.Type == trace.IRQEntry {
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindIRQ, number: b.IRQ, name: b.Name})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindIRQ && f.number == b.IRQ })
		}
	case trace.Softirq:
		vec := int(b.Vec)
		if ev.Type == trace.SoftirqEntry {
			if b.AfterIRQ {
				c.protocol.at = 0 // what is received comes from a device
			}
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindSoftirq, number: vec, name: linux.Softirq(b.Vec, "?")})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindSoftirq && f.number == vec })
		}
	case trace.Hrtimer:
		if ev.Type == trace.HrtimerEntry {
			m.ingestLetOut(ev, c, &b)
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindTimer, hr: true, function: b.Function})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindTimer && f.hr })
		}
	case trace.Timer:
		if ev.Type == trace.TimerEntry {
			m.ingestProtocolTimer(ev, c, &b)
			m.push(c, ev.Time, frame{context: m.context(context{kind: KindTimer, function: b.Function})})
		} else {
			m.pop(c, ev.Time, func(f *frame) bool { return f.kind == KindTimer && !f.hr })
		}
	case trace.Net:
		m.ingestNet(ev, c, &b)
	}
}

// context deduplicates contexts.
func (m *model) context(x context) *context {
	key := contextKey{kind: x.kind[0], hr: x.hr, number: x.number, function: x.function}
	if c := m.contexts[key]; c != nil && c.name == x.name {
		return c
	}
	if len(m.contexts) < maxOpen {
		m.contexts[key] = &x
	}
	return &x
}

// ingestNet follows packets within this machine by their address.
func (m *model) ingestNet(ev *trace.Event, c *cpu, b *trace.Net) {
	if len(m.keyed) > 0 {
		m.noteTransit(ev, b)
	}
	if ev.Type == trace.NetQueue {
		p := packet{at: ev.Time, sender: ev.TID}
		if b.Context != 0 {
			p.sender = 0 // it is only interrupted
		}
		for i := range c.frames {
			p.sender = 0
			if c.frames[i].sender != 0 {
				p.sender = c.frames[i].sender // forwarded
			}
		}
		if len(m.packets) >= maxOpen {
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
		f.device = b.Dev
		f.sender = m.senderOf(b.SKB, ev.Time)
		return
	}
	c.received, c.receivedAt = frame{device: b.Dev, sender: m.senderOf(b.SKB, ev.Time)}, ev.Time
}

// senderOf returns the task of this machine that sent a packet, or 0.
func (m *model) senderOf(skb, at uint64) int {
	if p, ok := m.packets[skb]; ok && at-p.at < packetLifetime {
		return p.sender
	}
	return 0
}

// packetLifetime bounds the time a packet spends within this machine.
const packetLifetime = 1_000_000_000

// push enters a context on a CPU.
func (m *model) push(c *cpu, at uint64, f frame) {
	if len(c.frames) >= maxContexts {
		return
	}
	m.recordInterruption(c, at)
	f.request = nil
	c.frames = append(c.frames, f)
}

// pop leaves the innermost matching context and any above it.
func (m *model) pop(c *cpu, at uint64, fits func(*frame) bool) {
	for i := len(c.frames) - 1; i >= 0; i-- {
		if !fits(&c.frames[i]) {
			continue
		}
		m.recordInterruption(c, at)
		f := c.frames[i]
		if i > 0 && f.request != nil && c.frames[i-1].request == nil && f.kind == KindTimer {
			c.frames[i-1].request = f.request
		}
		c.frames = c.frames[:i]
		return
	}
}

// recordInterruption closes the interval of the innermost context.
func (m *model) recordInterruption(c *cpu, at uint64) {
	from := max(c.framesChanged, m.from)
	c.framesChanged = at
	if n := len(c.frames); n > 0 && at > from && m.reserve() {
		c.interruptions = appendGrow(c.interruptions, interruption{from: from, to: at, context: c.frames[n-1].context})
	}
}

// clearFrames drops all contexts when a CPU leaves a task (t, or nil). On real-time
// kernels softirqs move with their task.
func (m *model) clearFrames(c *cpu, at uint64, t *task) {
	if len(c.frames) == 0 {
		return
	}
	m.recordInterruption(c, at)
	if t != nil {
		for _, f := range c.frames {
			if f.kind != KindIRQ && !f.hr {
				t.carried = append(t.carried, f)
			}
		}
	}
	c.frames = c.frames[:0]
}

// finish closes everything open at the end of the trace.
func (m *model) finish() {
	for _, c := range m.cpus {
		if len(c.covered) > 0 && c.covered[0].To < m.to {
			m.loseCPU(c, c.covered[0].To)
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
		for i := range t.lockWaits {
			l := &t.lockWaits[i]
			l.to = m.gapIn(l.from, min(l.to, m.to)) // its end may be missing
		}
		for i := range t.memoryWaits {
			e := &t.memoryWaits[i]
			e.to = m.gapIn(e.from, min(e.to, m.to))
		}
	}
	for _, c := range m.cpus {
		if i := len(c.runs); i > 0 && c.runs[i-1].to == forever {
			c.runs[i-1].to = max(m.to, c.runs[i-1].from)
		}
		m.recordInterruption(c, m.to)
		for i := range c.quota {
			q := &c.quota[i]
			q.to = m.gapIn(q.from, min(q.to, m.to))
		}
		c.interruptions = mergeSteals(c.interruptions, c.steals)
	}
	for n, list := range m.names.Covered {
		if m.cpus[n] != nil || len(m.cpus) >= maxCPUs {
			continue
		}
		c := &cpu{} // no events: idle
		for _, s := range list {
			if s.From < s.To && m.reserve() {
				c.runs = append(c.runs, run{from: s.From, to: s.To})
			}
		}
		m.cpus[n] = c
	}
}

// mergeSteals overlays stolen time on the other interruptions. Both lists are sorted,
// unless the trace is damaged.
func mergeSteals(overs, steals []interruption) []interruption {
	if len(steals) == 0 {
		return overs
	}
	out := make([]interruption, 0, len(overs)+2*len(steals))
	var end uint64
	add := func(o interruption) {
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
