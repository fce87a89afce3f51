// Package adaptive finds thresholds that follow the load. It is arithmetic on
// histograms: it reads no kernel, and no clock.
package adaptive

import (
	"math"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
)

const (
	parts    = 30              // that a window is made of; it slides by one of them
	least    = time.Second     // a part
	recently = 5 * time.Second // what a shift is noticed in
	// spare is how many of the recent delays may be outliers without lifting
	// the threshold over the next one. Fewer than twice as many tell nothing.
	spare = 10
)

// Follower follows one distribution. Its threshold rises as soon as the last
// seconds are slower than the window, at the next Update, and falls when the
// slow part has left the window. Not for several goroutines at once.
type Follower struct {
	spec   rules.Adaptive
	before histogram.Histogram // as read last
	begun  bool
	window histogram.Window
	recent histogram.Window
	state  State
}

// State is what a threshold is made of.
type State struct {
	Samples    uint64        // in the window
	QuantileNS int64         // of the window, or of the last seconds if that is more; 0: too few samples
	Threshold  time.Duration // 0: too few samples, nothing is to fire
}

// New returns a follower that has seen nothing.
func New(spec rules.Adaptive) *Follower {
	return &Follower{
		spec:   spec,
		window: histogram.Window{Length: spec.Window, Part: max(spec.Window/parts, least)},
		recent: histogram.Window{Length: recently},
	}
}

// State is that after the last Update.
func (f *Follower) State() State { return f.state }

// Update takes the histogram as it stands at a time, which must not go back,
// and returns the threshold from now on. What the histogram held at the first
// call counts as seen just then: it is the only past that there is.
func (f *Follower) Update(now time.Time, seen *histogram.Histogram) State {
	delta := *seen
	if f.begun {
		delta = seen.Sub(&f.before)
	}
	f.before, f.begun = *seen, true
	f.window.Add(now, &delta)
	f.recent.Add(now, &delta)

	whole := f.window.Sum()
	f.state = State{Samples: whole.Count}
	if whole.Count < f.spec.MinSamples {
		return f.state
	}
	slow := whole.Quantile(f.spec.Quantile)
	if last := f.recent.Sum(); last.Count >= 2*spare {
		slow = max(slow, last.Quantile(min(f.spec.Quantile, 1-spare/float64(last.Count))))
	}
	f.state.QuantileNS = int64(min(slow, math.MaxInt64))
	f.state.Threshold = f.spec.Clamp(max(duration(f.spec.Times*float64(slow)), 1))
	return f.state
}

// duration is ns as far as a Duration can hold it.
func duration(ns float64) time.Duration {
	if ns >= float64(math.MaxInt64) {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
