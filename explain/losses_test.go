package explain

import (
	"slices"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// damage is how the recorder has lost some of what happened, and what it knows of that.
type damage func(m *machine, list events) (events, map[int][]Interval)

// fromTheMiddle is a recorder whose rings have come round, each CPU's at another time.
func fromTheMiddle(m *machine, list events) (events, map[int][]Interval) {
	covered := map[int][]Interval{}
	for _, c := range m.cpus {
		covered[c.n] = []Interval{{5_000_000 + m.us(0, 10_000), m.now}}
	}
	return slices.DeleteFunc(list, func(ev trace.Event) bool { return ev.Time < covered[ev.CPU][0].From }), covered
}

// gaps are times of which a CPU's records were overwritten before they were read.
func gaps(m *machine, list events) (events, map[int][]Interval) {
	covered := map[int][]Interval{}
	for _, c := range m.cpus {
		at := uint64(1_000_000)
		for range m.rnd.IntN(4) {
			end := at + m.us(1000, 20_000)
			covered[c.n] = append(covered[c.n], Interval{at, end})
			at = end + m.us(100, 3000)
		}
		covered[c.n] = append(covered[c.n], Interval{at, m.now})
	}
	return slices.DeleteFunc(list, func(ev trace.Event) bool {
		return !slices.ContainsFunc(covered[ev.CPU], func(i Interval) bool { return i.From <= ev.Time && ev.Time <= i.To })
	}), covered
}

// unseen are switches that the kernel has kept from tracers: never two in a row.
func unseen(m *machine, list events) (events, map[int][]Interval) {
	last := map[int]bool{}
	return slices.DeleteFunc(list, func(ev trace.Event) bool {
		if ev.Type != trace.SchedSwitch {
			return false
		}
		last[ev.CPU] = !last[ev.CPU] && m.rnd.IntN(50) == 0
		return last[ev.CPU]
	}), nil
}
