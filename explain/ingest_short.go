package explain

import (
	"slices"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// maxGaps bounds how many interruptions are searched for the time between them.
const maxGaps = 64

// ingestShortRuns places the time that short interrupts or softirqs have taken since an
// earlier one. When within that period is not known: it is put as late as other
// interruptions leave room for it, which is off by at most the period.
func (m *model) ingestShortRuns(ev *trace.Event, c *cpu, b *trace.ShortRuns) {
	if len(c.frames) > 0 {
		return // a part of what is recorded itself
	}
	if b.Sampled {
		m.ingestSample(ev, c, b)
		return
	}
	x := context{kind: KindIRQ, number: unknownNumber, name: shortInterrupts}
	if b.Vec >= 0 {
		x = context{kind: KindSoftirq, number: b.Vec, name: linux.Softirq(uint32(b.Vec), "?")}
	}
	since, left, at := max(b.Since, m.from), b.NS, ev.Time
	if at > m.to && since < m.to { // the outlier's share
		left, at = uint64(float64(left)*float64(m.to-since)/float64(at-since)), m.to
	}
	m.interrupt(c, since, at, left, m.context(x), false)
}

// interrupt puts so much time of a context between two moments, as late as other
// interruptions leave room for it.
func (m *model) interrupt(c *cpu, since, at, left uint64, ctx *context, sampled bool) {
	i := len(c.interruptions)
	for range maxGaps {
		from := since
		if i > 0 {
			from = max(from, min(c.interruptions[i-1].to, at))
		}
		if took := min(left, at-min(from, at)); took > 0 && m.reserve() {
			c.interruptions = slices.Insert(c.interruptions, i, interruption{from: at - took, to: at, context: ctx, sampled: sampled, placed: true})
			left -= took
		}
		if left == 0 || i == 0 || c.interruptions[i-1].from <= since {
			return
		}
		i--
		at = c.interruptions[i].from
	}
}

// Names of what has none.
const (
	shortInterrupts = "short interrupts"
	someInterrupt   = "an interrupt"
	someSoftirq     = "a softirq"
)

// unknownNumber is the number of an interrupt or softirq that is not known.
const unknownNumber = -1

// wakeContext returns what woke a task on top of the waker if its events were not
// recorded, or nil.
func (m *model) wakeContext(b *trace.Wake) *context {
	switch kind, number := b.Runs(); kind {
	case trace.IRQEntry:
		x := context{kind: KindIRQ, number: number}
		if number == unknownNumber {
			x.name = someInterrupt
		}
		return m.context(x)
	case trace.SoftirqEntry:
		name := someSoftirq
		if number != unknownNumber {
			name = linux.Softirq(uint32(number), "?")
		}
		return m.context(context{kind: KindSoftirq, number: number, name: name})
	case trace.HrtimerEntry:
		return m.context(context{kind: KindTimer, hr: true})
	}
	return nil
}
