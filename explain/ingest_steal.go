package explain

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// stealDelay is how long after the hypervisor took a CPU away the trace may tell
// of it: the kernel looks at its ticks, of which the slowest are 10 ms apart.
const stealDelay = 20_000_000

// silence is a stretch in which a CPU has no event.
type silence struct{ from, to uint64 }

func (h silence) length() uint64 { return h.to - h.from }

const (
	minSilence  = 5_000 // shorter ones hide no steal that is told
	maxSilences = 64
)

// noteSilence notes the stretch without an event before this one, unless it was idle.
func (c *cpu) noteSilence(at uint64, idle bool) {
	if c.lastEvent > 0 && at > c.lastEvent+minSilence && !idle {
		if len(c.silences) >= maxSilences {
			// The longest are the likeliest, but old ones are of no use.
			c.silences = slices.DeleteFunc(c.silences, func(h silence) bool { return h.to+stealDelay < at })
			slices.SortFunc(c.silences, func(a, b silence) int { return cmp.Compare(b.length(), a.length()) })
			c.silences = c.silences[:min(len(c.silences), maxSilences/2)]
		}
		c.silences = append(c.silences, silence{c.lastEvent, at})
	}
	c.lastEvent = at
}

// ingestSteal takes in that the hypervisor had taken the CPU for some time in a
// stretch. A CPU that is away has no events: it was where that is long enough.
func (m *model) ingestSteal(ev *trace.Event, c *cpu, b *trace.Stolen) {
	least := max(b.Since, m.from)
	if n := len(c.steals); n > 0 {
		least = max(least, c.steals[n-1].to)
	}
	var holes []silence
	for _, h := range c.silences {
		if h.from = max(h.from, b.Since); h.from < h.to {
			holes = append(holes, h)
		}
	}
	if len(holes) == 0 {
		holes = []silence{{ev.Time - min(b.NS, ev.Time), ev.Time}}
	}
	// The one that it fits best goes first: what was slow was so for a reason. Where it fits none, the longest.
	slices.SortFunc(holes, func(x, y silence) int {
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
	for i := range holes {
		took := min(left, holes[i].length())
		holes[i].from = holes[i].to - took // what came first after it is its end
		left -= took
	}
	slices.SortFunc(holes, func(a, b silence) int { return cmp.Compare(a.from, b.from) })
	for _, h := range holes {
		if h.from = max(h.from, least); h.from < h.to && m.reserve() {
			c.steals = append(c.steals, interruption{from: h.from, to: h.to, context: m.context(context{kind: KindHypervisor, name: "the hypervisor"})})
		}
	}
	c.silences = slices.DeleteFunc(c.silences, func(h silence) bool { return h.to <= b.Since })
}

// insideOutlier tells whether an outlier was under way in all of a hole.
func (m *model) insideOutlier(h silence) bool {
	return slices.ContainsFunc(m.outlierTimes, func(s Interval) bool { return h.from >= s.From && h.to <= s.To })
}

// ingestLate takes in what comes after the last outlier, of which only steal may
// be about the time before.
func (m *model) ingestLate(ev *trace.Event) {
	c := m.cpu(ev.CPU)
	c.noteSilence(ev.Time, ev.TID == 0)
	if b, ok := ev.Body.(trace.Stolen); ok {
		m.ingestSteal(ev, c, &b)
	}
}
