package trigger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// Delays is what a promise about delays needs of the daemon.
type Delays interface {
	// Histogram returns all delays of a rule or tracker since it began.
	Histogram(of string) (histogram.Histogram, error)
	// Worst returns the worst outlier of a rule or tracker that ended since a time in
	// nanoseconds of CLOCK_MONOTONIC; nil: there is none.
	Worst(of string, since uint64) *events.Outlier
}

const (
	sloParts = 30 // that a window is made of
	// How often a distribution is read.
	minSLORead, maxSLORead = time.Second, 10 * time.Second
	// sloKept is the part of the limit below which a broken promise counts as kept again.
	sloKept = 0.9
	// recentWorst is how long ago an outlier may have ended for its time to be explained:
	// the history does not reach back far.
	recentWorst = 5 * time.Second
)

// slo watches a promise. It fires when the promise is broken, then not before it was kept
// again and the window is over: what lasts is one outlier.
type slo struct {
	spec   rules.SLOSource
	delays Delays

	window histogram.Window
	before histogram.Histogram // as read last
	begun  bool
	broken bool
	next   time.Time // the earliest time to fire
}

func newSLO(spec *rules.SLOSource, delays Delays) *slo {
	return &slo{spec: *spec, delays: delays, window: histogram.Window{Length: spec.Over, Part: readEvery(spec)}}
}

func readEvery(spec *rules.SLOSource) time.Duration {
	return min(max(spec.Over/sloParts, minSLORead), maxSLORead)
}

func (s *slo) close() {}

func (s *slo) watch(ctx context.Context, fire func(*Event)) error {
	if s.delays == nil {
		return errors.New("read the histogram: there is none")
	}
	tick := time.NewTicker(readEvery(&s.spec))
	defer tick.Stop()
	for {
		all, err := s.delays.Histogram(s.spec.Of)
		if err != nil {
			return fmt.Errorf("read the histogram of %s: %w", s.spec.Of, err)
		}
		if ev := s.judge(time.Now(), &all); ev != nil {
			s.name(ev)
			fire(ev)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// judge takes the distribution as it stands now, and returns an event if the promise has
// just been broken. What came before the first call does not count.
func (s *slo) judge(now time.Time, all *histogram.Histogram) *Event {
	if s.begun {
		delta := all.Sub(&s.before)
		s.window.Add(now, &delta)
	}
	s.before, s.begun = *all, true
	h := s.window.Sum()
	slow := time.Duration(min(h.Quantile(s.spec.Quantile), math.MaxInt64))
	switch {
	case h.Count < s.spec.MinEvents, float64(slow) < sloKept*float64(s.spec.Below):
		s.broken = false
		return nil
	case s.broken, slow < s.spec.Below, now.Before(s.next):
		return nil
	}
	s.broken, s.next = true, now.Add(s.spec.Over)
	return &Event{
		Time: slow, Limit: s.spec.Below,
		Reason: fmt.Sprintf("%s: it is %s, of %d delays", &s.spec, slow.Round(time.Microsecond), h.Count),
	}
}

// name adds the worst outlier that tailcam remembers of the window. If one has just ended,
// its last part, as long as the percentile, is what is explained.
func (s *slo) name(ev *Event) {
	now := linux.Monotonic()
	since := func(d time.Duration) uint64 { return now - min(uint64(d), now) }
	o := s.delays.Worst(s.spec.Of, since(s.spec.Over))
	if o == nil {
		ev.Reason += "; no outlier of it is remembered"
		return
	}
	ev.Reason += fmt.Sprintf("; the worst outlier took %s", time.Duration(o.DelayNS).Round(time.Microsecond))
	if o.Snapshot != nil {
		ev.Reason += ", see snapshot " + *o.Snapshot
	}
	if o = s.delays.Worst(s.spec.Of, since(recentWorst)); o == nil || o.Task.TID == 0 {
		return
	}
	t := &o.Task
	ev.Task = &Task{PID: t.PID, TID: t.TID, Comm: t.Comm, Cgroup: t.Cgroup, UID: t.UID, Cmdline: t.Cmdline, Past: true}
	ev.End = o.EndMono
}
