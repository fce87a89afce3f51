package explain

import (
	"cmp"
	"slices"
	"sort"
)

// findGaps finds the times in which records of some CPU are missing.
func (m *model) findGaps() {
	var all []Interval
	for _, list := range m.names.Covered {
		at := uint64(0)
		for _, i := range list {
			if i.From > at {
				all = append(all, Interval{at, i.From})
			}
			at = max(at, i.To)
		}
		all = append(all, Interval{at, forever})
	}
	slices.SortFunc(all, func(a, b Interval) int { return cmp.Compare(a.From, b.From) })
	for _, i := range all {
		if n := len(m.gaps); n > 0 && i.From <= m.gaps[n-1].To {
			m.gaps[n-1].To = max(m.gaps[n-1].To, i.To)
		} else {
			m.gaps = append(m.gaps, i)
		}
	}
}

// gapIn returns where records of some CPU begin to be missing between two times; to: nowhere.
func (m *model) gapIn(from, to uint64) uint64 {
	i := sort.Search(len(m.gaps), func(i int) bool { return m.gaps[i].To > from })
	if i == len(m.gaps) {
		return to
	}
	return min(max(m.gaps[i].From, from), to)
}

// lessSure gives pieces that are no guess anyway some other evidence.
func lessSure(pieces []piece, e evidence) {
	for i := range pieces {
		if evidences[pieces[i].evidence].confidence != Guess {
			pieces[i].evidence = e
		}
	}
}

// runnableUntilGap explains runnable time as long as the task cannot have run unseen elsewhere.
func (w *walker) runnableUntilGap(out []piece, t *task, s, full *segment) []piece {
	sure := *s
	sure.to = max(w.m.gapIn(full.from, s.to), s.from)
	if sure.from < sure.to {
		out = w.runnableSegment(out, t, &sure, full)
	}
	return w.add(out, w.unexplained(t.tid, sure.to, s.to, reasonOverwritten))
}
