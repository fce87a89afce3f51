package explain

import (
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// maxPeriod bounds what one sample of a softirq stands for: a tick at 100 Hz, the
// slowest there is. Idle CPUs have none for long.
const maxPeriod = 10_000_000

// sample is the last one of a CPU that found it in a softirq.
type sample struct {
	at      uint64
	again   bool     // the one before did as well
	context *context // nil: there is none, or its softirq is over
}

// ingestSample accounts a softirq the time since the sample before, as the kernel's own
// accounting does: on the average, that is right. One that the sample before has found as
// well has run all the time; in another one's time, no task can have been at work.
func (m *model) ingestSample(ev *trace.Event, c *cpu, b *trace.ShortRuns) {
	x := context{kind: KindSoftirq, number: unknownNumber, name: someSoftirq}
	if b.Vec != trace.UnknownVec {
		x.number, x.name = b.Vec, linux.Softirq(uint32(b.Vec), "?")
	}
	since := max(b.Since, m.from)
	if !b.Same {
		since = max(since, c.taskAt, ev.Time-min(ev.Time, maxPeriod))
	}
	ctx := m.context(x)
	if to := min(ev.Time, m.to); since < to {
		m.interrupt(c, since, to, to-since, ctx, true)
	}
	c.sample = sample{at: ev.Time, again: b.Same || c.sample.context != nil && c.sample.at == b.Since, context: ctx}
}

// endSample ends the softirq of the last samples at a switch. A task that is preempted
// leaves its CPU as soon as the softirq lets it: it was in its way until then.
func (m *model) endSample(ev *trace.Event, c *cpu, b *trace.Switch) {
	s := c.sample
	if s.again && (b.PrevState == 0 || b.Preempted) && ev.Time > s.at && ev.Time-s.at < maxPeriod {
		m.interrupt(c, s.at, ev.Time, ev.Time-s.at, s.context, true)
	}
	c.sample, c.taskAt = sample{}, ev.Time
}
