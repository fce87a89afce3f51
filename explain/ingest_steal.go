package explain

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// stealDelay is the maximum delay of a steal event: the kernel checks at its ticks, at
// most 10 ms apart.
const stealDelay = 20_000_000

// silence is an interval without events on a CPU.
type silence struct{ from, to uint64 }

func (h silence) length() uint64 { return h.to - h.from }

const (
	minSilence  = 5_000 // shorter ones contain no steal that is reported
	maxSilences = 64
)

// noteSilence records the interval before an event, unless the CPU was idle.
func (c *cpu) noteSilence(at uint64, idle bool) {
	if c.lastEvent > 0 && at > c.lastEvent+minSilence && !idle {
		if len(c.silences) >= maxSilences {
			c.dropSilences(at)
		}
		c.silences = append(c.silences, silence{c.lastEvent, at})
	}
	c.lastEvent = at
}

// dropSilences drops half of them at least: longer ones are more likely steals, and old ones are
// useless.
func (c *cpu) dropSilences(at uint64) {
	var lengths [maxSilences]uint64
	for i, h := range c.silences {
		lengths[i] = h.length()
	}
	slices.Sort(lengths[:])
	median := lengths[maxSilences/2]
	c.silences = slices.DeleteFunc(c.silences, func(h silence) bool { return h.to+stealDelay < at || h.length() < median })
	c.silences = slices.Delete(c.silences, 0, max(0, len(c.silences)-maxSilences/2)) // of the same length
}

// ingestSteal attributes stolen time to the silences of its period: a stolen CPU
// produces no events.
func (m *model) ingestSteal(ev *trace.Event, c *cpu, b *trace.Stolen) {
	earliest := max(b.Since, m.from)
	if n := len(c.steals); n > 0 {
		earliest = max(earliest, c.steals[n-1].to)
	}
	var silences []silence
	for _, h := range c.silences {
		if h.from = max(h.from, b.Since); h.from < h.to {
			silences = append(silences, h)
		}
	}
	if len(silences) == 0 {
		silences = []silence{{ev.Time - min(b.NS, ev.Time), ev.Time}}
	}
	// Prefer the shortest silence that is long enough, within an outlier if possible;
	// otherwise the longest.
	slices.SortFunc(silences, func(x, y silence) int {
		if x.length() < b.NS || y.length() < b.NS {
			return cmp.Compare(y.length(), x.length())
		}
		if a, b := m.insideOutlier(x), m.insideOutlier(y); a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.length(), y.length())
	})
	left := b.NS
	for i := range silences {
		took := min(left, silences[i].length())
		silences[i].from = silences[i].to - took // the first event after a steal ends the silence
		left -= took
	}
	slices.SortFunc(silences, func(a, b silence) int { return cmp.Compare(a.from, b.from) })
	for _, h := range silences {
		if h.from = max(h.from, earliest); h.from < h.to && m.reserve() {
			c.steals = append(c.steals, interruption{from: h.from, to: h.to, context: m.context(context{kind: KindHypervisor, name: "the hypervisor"})})
		}
	}
	c.silences = slices.DeleteFunc(c.silences, func(h silence) bool { return h.to <= b.Since })
}

// insideOutlier reports whether a silence lies within an outlier.
func (m *model) insideOutlier(h silence) bool {
	return slices.ContainsFunc(m.outlierTimes, func(s Interval) bool { return h.from >= s.From && h.to <= s.To })
}

// ingestLate handles events after the last outlier: only those that tell of steal, of short
// interrupts or of what a task did right after it may concern earlier time.
func (m *model) ingestLate(ev *trace.Event) {
	c := m.cpu(ev.CPU)
	c.noteSilence(ev.Time, ev.TID == 0)
	switch b := ev.Body.(type) {
	case trace.Stolen:
		m.ingestSteal(ev, c, &b)
	case trace.ShortRuns:
		if b.Since < m.to {
			m.ingestShortRuns(ev, c, &b)
		}
	case trace.FileLock: // the next try, after a sleep that was the outlier
		if t := m.tasks[ev.TID]; t != nil {
			m.ingestFileLock(t, ev.Time, &b)
		}
	case trace.Switch:
		if t := m.tasks[ev.TID]; t != nil && b.PrevState != 0 && !b.Preempted {
			t.sleptLate = cmp.Or(t.sleptLate, ev.Time)
		}
	}
}
