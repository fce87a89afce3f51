package explain

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// stealLate is how long after the hypervisor took a CPU away the trace may tell
// of it: the kernel looks at its ticks, of which the slowest are 10 ms apart.
const stealLate = 20_000_000

// hole is a stretch in which a CPU has no event.
type hole struct{ from, to uint64 }

func (h hole) length() uint64 { return h.to - h.from }

const (
	leastHole = 5_000 // shorter ones hide no steal that is told
	maxHoles  = 64
)

// quiet notes the stretch without an event before this one, unless it was idle.
func (c *cpu) quiet(at uint64, idle bool) {
	if c.last > 0 && at > c.last+leastHole && !idle {
		if len(c.holes) >= maxHoles {
			// The longest are the likeliest, but old ones are of no use.
			c.holes = slices.DeleteFunc(c.holes, func(h hole) bool { return h.to+stealLate < at })
			slices.SortFunc(c.holes, func(a, b hole) int { return cmp.Compare(b.length(), a.length()) })
			c.holes = c.holes[:min(len(c.holes), maxHoles/2)]
		}
		c.holes = append(c.holes, hole{c.last, at})
	}
	c.last = at
}

// feedSteal takes in that the hypervisor had taken the CPU for some time in a
// stretch. A CPU that is away has no events: it was where that is long enough.
func (m *model) feedSteal(ev *trace.Event, c *cpu, b *trace.Stolen) {
	least := max(b.Since, m.from)
	if n := len(c.steals); n > 0 {
		least = max(least, c.steals[n-1].to)
	}
	var holes []hole
	for _, h := range c.holes {
		if h.from = max(h.from, b.Since); h.from < h.to {
			holes = append(holes, h)
		}
	}
	if len(holes) == 0 {
		holes = []hole{{ev.Time - min(b.NS, ev.Time), ev.Time}}
	}
	// The one that it fits best goes first: what was slow was so for a reason. Where it fits none, the longest.
	slices.SortFunc(holes, func(x, y hole) int {
		if x.length() < b.NS || y.length() < b.NS {
			return cmp.Compare(y.length(), x.length())
		}
		if a, b := m.within(x), m.within(y); a != b {
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
	slices.SortFunc(holes, func(a, b hole) int { return cmp.Compare(a.from, b.from) })
	for _, h := range holes {
		if h.from = max(h.from, least); h.from < h.to && m.keep() {
			c.steals = append(c.steals, over{from: h.from, to: h.to, context: m.context(context{kind: KindHypervisor, name: "the hypervisor"})})
		}
	}
	c.holes = slices.DeleteFunc(c.holes, func(h hole) bool { return h.to <= b.Since })
}

// within tells whether an outlier was under way in all of a hole.
func (m *model) within(h hole) bool {
	return slices.ContainsFunc(m.slow, func(s Stretch) bool { return h.from >= s.From && h.to <= s.To })
}

// feedLate takes in what comes after the last outlier, of which only steal may
// be about the time before.
func (m *model) feedLate(ev *trace.Event) {
	c := m.cpu(ev.CPU)
	c.quiet(ev.Time, ev.TID == 0)
	if b, ok := ev.Body.(trace.Stolen); ok {
		m.feedSteal(ev, c, &b)
	}
}
