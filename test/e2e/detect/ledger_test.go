package detect

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// skew is how far the two clock readings of one moment may lie apart: the
	// kernel side reads the clock's lockless variant.
	skew = 20 * time.Microsecond
	// tolerance is how far injected and reported length may differ, for all but
	// those that were disturbed between clock and hook.
	tolerance = time.Millisecond
)

// pair is an injected latency and what was reported of it.
type pair struct {
	inject.Event
	reports []*events.Outlier
}

// ledger holds every injected latency against what was reported.
type ledger struct {
	t         *testing.T
	c         *camera
	threshold time.Duration
	slack     time.Duration // of the injector's clock; 0: skew
	pairs     []*pair
	strays    []*events.Outlier // of the injector's threads, but of none of its latencies
}

// balance assigns the reports of one rule to the injected latencies: those of
// the same thread in which they lie.
func (c *camera) balance(t *testing.T, threshold time.Duration, injected []inject.Event, reports []*events.Outlier, rule string) *ledger {
	t.Helper()
	l := &ledger{t: t, c: c, threshold: threshold, slack: skew}
	l.assign(injected, reports, rule)
	return l
}

func (l *ledger) assign(injected []inject.Event, reports []*events.Outlier, rule string) {
	byTID := map[int][]*pair{}
	for _, e := range injected {
		p := &pair{Event: e}
		l.pairs = append(l.pairs, p)
		byTID[e.TID] = append(byTID[e.TID], p)
	}
	for _, list := range byTID {
		slices.SortFunc(list, func(a, b *pair) int { return cmp.Compare(a.Start, b.Start) })
	}
	for _, o := range reports {
		if o.Rule != rule {
			continue
		}
		list, ours := byTID[o.Task.TID]
		if !ours {
			continue
		}
		if p := l.within(list, o); p != nil {
			p.reports = append(p.reports, o)
		} else if !slices.ContainsFunc(list, func(p *pair) bool { return p.spoilt(o) }) {
			l.strays = append(l.strays, o)
		}
	}
}

// spoilt tells whether a report reaches into a latency that did not come about as
// it was asked for: then it may have begun before, as when the thread waited for
// the CPU when it should have slept already.
func (p *pair) spoilt(o *events.Outlier) bool {
	return p.Kind == inject.Spoilt && o.StartMono <= p.End && o.EndMono >= p.Start
}

// within finds the latency in which a report lies: if need be, as far outside
// of it as the clocks may differ.
func (l *ledger) within(list []*pair, o *events.Outlier) *pair {
	for _, slack := range []uint64{0, uint64(l.slack)} {
		for _, p := range list {
			end := p.End
			if p.Kind == inject.Dead {
				end = p.Start + uint64(time.Second)
			}
			if o.StartMono+slack >= p.Start && o.EndMono <= end+slack {
				return p
			}
		}
	}
	return nil
}

// must tells whether p has to be reported; mustNot, that it has to be not.
func (l *ledger) must(p *pair) bool {
	return (p.Kind == inject.Over || p.Kind == inject.Edge) && p.Delay() > l.threshold+tolerance
}

func (l *ledger) mustNot(p *pair) bool {
	return p.Kind != inject.Spoilt && p.Kind != inject.Dead && p.Delay() < l.threshold
}

// check demands at least over reported and under unreported latencies, every
// one that must be reported exactly once, and no other. It returns the reports
// of those that had to be reported, with what was injected.
//
// A machine that is busy with other things spoils some of what was asked for.
// Then fewer count, which is said, and is no fault of the tracker. Nor is what
// the kernel does not tell to any tracer: see camera.unseen.
func (l *ledger) check(over, under int) []*pair {
	l.t.Helper()
	var found []*pair
	var silent, wrong, twice int
	var missed []*pair
	for _, p := range l.pairs {
		switch {
		case l.must(p) && len(p.reports) == 0:
			missed = append(missed, p)
		case l.mustNot(p) && len(p.reports) > 0:
			if wrong++; wrong <= 5 {
				l.t.Errorf("reported as %v, but took %v, threshold %v: %+v",
					time.Duration(p.reports[0].DelayNS), p.Delay(), l.threshold, p.Event)
			}
		case l.must(p):
			found = append(found, p)
		case l.mustNot(p):
			silent++
		}
		if len(p.reports) > 1 && p.Kind != inject.Spoilt {
			if twice++; twice <= 5 {
				l.t.Errorf("reported %d times: %+v", len(p.reports), p.Event)
			}
		}
	}
	if len(missed) > 0 {
		unseen := l.c.unseen()
		l.t.Logf("%d missed; this kernel has left out %d context switches and wake-ups", len(missed), unseen)
		if len(missed) > unseen {
			for _, p := range missed[:min(len(missed), 5)] {
				l.t.Errorf("not reported: %+v, %v", p.Event, p.Delay())
			}
		}
	}
	for _, o := range l.strays {
		if l.elsewhere(o) {
			l.t.Logf("%v of thread %d was not injected, but true: %s had the CPU", time.Duration(o.DelayNS), o.Task.TID, o.OnCPU.Comm)
			continue
		}
		l.t.Errorf("reported %v of thread %d (%s) from %d on, which was not injected; ran instead: %+v",
			time.Duration(o.DelayNS), o.Task.TID, o.Task.Comm, o.StartMono, o.OnCPU)
	}
	either := len(l.pairs) - len(found) - silent - len(missed) - wrong
	if len(found) < over || silent < under {
		said := fmt.Sprintf("%d over and reported and %d under and not, want %d and %d of %d injected", len(found), silent, over, under, len(l.pairs))
		if len(l.pairs) < over+under || len(found)+either+len(missed) < over || len(found) == 0 && over > 0 {
			l.t.Error(said)
		}
		l.t.Logf("this machine was too busy to inject exactly: %s", said)
	}
	l.t.Logf("%d injected: %d over and reported, %d under and not, %d missed, %d wrong, %d twice, %d either way",
		len(l.pairs), len(found), silent, len(missed), wrong, twice, either)
	l.who(found)
	l.times(found)
	return found
}

// elsewhere tells whether an injector's thread waited outside of what it
// injects, because other programs had the CPU, of which the report names the
// one that had it longest. That happens to real-time threads too: the kernel
// keeps a twentieth of the time for the others.
func (l *ledger) elsewhere(o *events.Outlier) bool {
	return o.Track == "wakeup" && o.OnCPU != nil && o.OnCPU.PID != o.Task.PID && o.OnCPU.RanNS > o.DelayNS/4
}

// who demands the right task and threshold of every report.
func (l *ledger) who(found []*pair) {
	l.t.Helper()
	for _, p := range found {
		o := p.reports[0]
		if o.Task.PID != p.PID || o.Task.TID != p.TID || o.Task.Comm != p.Comm || o.Task.Kernel {
			l.t.Errorf("task %+v, injected by %d, %d, %s", o.Task, p.PID, p.TID, p.Comm)
		}
		if time.Duration(o.DelayNS) < l.threshold || uint64(o.DelayNS) != o.EndMono-o.StartMono {
			l.t.Errorf("delay %v from %d to %d, threshold %v", time.Duration(o.DelayNS), o.StartMono, o.EndMono, l.threshold)
		}
		if o.ThresholdNS != l.threshold.Nanoseconds() {
			l.t.Errorf("threshold %v, want %v", time.Duration(o.ThresholdNS), l.threshold)
		}
	}
}

// times demands that nearly all reported lengths are the injected ones.
func (l *ledger) times(found []*pair) {
	l.t.Helper()
	var differences []time.Duration
	for _, p := range found {
		differences = append(differences, p.Delay()-time.Duration(p.reports[0].DelayNS))
	}
	if len(differences) == 0 {
		return
	}
	slices.Sort(differences)
	at := func(permille int) time.Duration { return differences[(len(differences)-1)*permille/1000] }
	l.t.Logf("injected minus reported: least %v, median %v, p90 %v, most %v", at(0), at(500), at(900), at(1000))
	if at(900) > tolerance {
		l.t.Errorf("a tenth of the reported lengths is more than %v from the injected ones", tolerance)
	}
}
