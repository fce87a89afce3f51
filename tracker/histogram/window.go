package histogram

import "time"

// Window is a distribution of the recent past, in parts that leave it one by one. Set
// Length; the zero value is otherwise empty and ready for use. Not for several goroutines
// at once.
type Window struct {
	Length time.Duration
	Part   time.Duration // of one part; 0: each Add has its own

	parts []part // oldest first; the last is being filled
}

type part struct {
	from, until time.Time
	Histogram
}

// Add counts what came until now, which must not go back, and drops the parts that ended
// longer ago than Length.
func (w *Window) Add(now time.Time, delta *Histogram) {
	for len(w.parts) > 0 && now.Sub(w.parts[0].until) >= w.Length {
		w.parts = w.parts[1:]
	}
	if n := len(w.parts); n > 0 && now.Sub(w.parts[n-1].from) < w.Part {
		w.parts[n-1].Merge(delta)
		w.parts[n-1].until = now
		return
	}
	w.parts = append(w.parts, part{from: now, until: now, Histogram: *delta})
}

// Sum is all that the window holds.
func (w *Window) Sum() Histogram {
	var all Histogram
	for i := range w.parts {
		all.Merge(&w.parts[i].Histogram)
	}
	return all
}
