package detect

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// skew is how far the two clock readings of one moment may lie apart: the
	// kernel side reads the clock's lockless variant.
	skew = 20 * time.Microsecond
	// tolerance is how much shorter than the injected one half of the reported
	// lengths may be, for what happens between clock and hook.
	tolerance = time.Millisecond
)

// must tells whether a latency has to be reported, mustNot, that it has to be
// not; both by the injector's clock alone.
func must(e *inject.Event, threshold time.Duration) bool {
	return (e.Kind == inject.Over || e.Kind == inject.Edge) && e.Delay() > threshold+tolerance
}

func mustNot(e *inject.Event, threshold time.Duration) bool {
	return e.Kind != inject.Spoilt && e.Kind != inject.Dead && e.Delay() < threshold
}

// exact injects until so many latencies came out as they were asked for: each
// round on a machine that others load has fewer.
func exact(t *testing.T, threshold time.Duration, over, under int, command ...string) (all []inject.Event) {
	t.Helper()
	const rounds = 6
	for range rounds {
		all = append(all, inject.Run(t, command...)...)
		overs, unders := 0, 0
		for i := range all {
			switch {
			case must(&all[i], threshold):
				overs++
			case mustNot(&all[i], threshold):
				unders++
			}
		}
		if overs >= over && unders >= under {
			break
		}
	}
	return all
}

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
	strays    []*events.Outlier          // of the injector's threads, but of none of its latencies
	other     func(*events.Outlier) bool // strays that are right; nil: none
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
		} else if !slices.ContainsFunc(list, func(p *pair) bool { return p.spoilt(o) || p.before(o) }) {
			l.strays = append(l.strays, o)
		}
	}
}

// before tells whether a report lies between two latencies: there nothing was
// injected, but the thread was away for that long by its own clock.
func (p *pair) before(o *events.Outlier) bool {
	return p.Since > 0 && o.StartMono+uint64(skew) >= p.Since && o.EndMono <= p.Start+uint64(skew)
}

// merge takes out the reports that begin before the latency in which they end,
// and returns those latencies: the kernel has told no tracer of an event between,
// so that what was over by then went on. There are no more such beginnings than
// such events.
func (l *ledger) merge() map[*pair]bool {
	pardoned := l.pardons()
	beginnings, merged := map[uint64]bool{}, map[*pair]bool{}
	l.strays = slices.DeleteFunc(l.strays, func(o *events.Outlier) bool {
		i := slices.IndexFunc(l.pairs, func(p *pair) bool {
			return p.TID == o.Task.TID && len(p.reports) == 0 && !merged[p] &&
				o.StartMono < p.Start && p.Start < o.EndMono && o.EndMono <= p.End+uint64(l.slack)
		})
		if i < 0 || !beginnings[o.StartMono] && !pardoned(l.pairs[i]) {
			return false
		}
		beginnings[o.StartMono], merged[l.pairs[i]] = true, true
		l.t.Logf("what began at %d went on, up to the end of %+v", o.StartMono, l.pairs[i].Event)
		return true
	})
	return merged
}

// pardons returns a judge of latencies that are not reported. Requests complete
// in anybody's time, and every thread of a chain hands it on.
func (l *ledger) pardons() func(*pair) bool {
	thread, process := l.c.pardons()
	unseen := l.c.unseen()
	return func(p *pair) bool {
		switch p.Track {
		case "block":
			unseen--
			return unseen >= 0
		case "chain":
			return process(p.PID)
		}
		return thread(p.TID)
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

func (l *ledger) must(p *pair) bool    { return must(&p.Event, l.threshold) }
func (l *ledger) mustNot(p *pair) bool { return mustNot(&p.Event, l.threshold) }

// check demands that every latency that must be reported is, exactly once, and
// no other. It returns the reports of those that had to be reported, with what
// was injected.
//
// A machine that is busy with other things spoils some of what was asked for.
// Where fewer than over and under count in the end, this is said, and is no
// fault of the tracker; but some have to. Nor is what the kernel does not tell
// to any tracer: see camera.pardons.
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
	if len(missed)+len(l.strays) > 0 {
		merged := l.merge()
		missed = slices.DeleteFunc(missed, func(p *pair) bool { return merged[p] })
		bad, pardoned := 0, l.pardons()
		for _, p := range missed {
			if !pardoned(p) {
				if bad++; bad <= 5 {
					l.t.Errorf("not reported: %+v, %v", p.Event, p.Delay())
				}
			}
		}
		l.t.Logf("%d merged, %d missed, %d of them not pardoned; this kernel has left out %d events",
			len(merged), len(missed), bad, l.c.unseen())
	}
	for _, o := range l.strays {
		if l.other != nil && l.other(o) {
			continue
		}
		l.t.Errorf("reported %v of thread %d (%s) from %d on, which was not injected; ran instead: %+v",
			time.Duration(o.DelayNS), o.Task.TID, o.Task.Comm, o.StartMono, o.OnCPU)
	}
	if len(found) < over || silent < under {
		l.t.Logf("this machine was too busy to inject exactly: want %d over and %d under", over, under)
		if len(l.pairs) < over+under || over > 0 && len(found) == 0 || under > 0 && silent == 0 {
			l.t.Errorf("%d over and reported, %d under and not: this proves nothing", len(found), silent)
		}
	}
	l.t.Logf("%d injected: %d over and reported, %d under and not, %d missed, %d wrong, %d twice, %d either way",
		len(l.pairs), len(found), silent, len(missed), wrong, twice, len(l.pairs)-len(found)-silent-len(missed)-wrong)
	l.who(found)
	l.times(found)
	return found
}

// who demands the right task and threshold of every report.
func (l *ledger) who(found []*pair) {
	l.t.Helper()
	for _, p := range found {
		o := p.reports[0]
		assert.Check(l.t, o.Task.PID == p.PID && o.Task.TID == p.TID && o.Task.Comm == p.Comm && !o.Task.Kernel,
			"task %+v, injected by %d, %d, %s", o.Task, p.PID, p.TID, p.Comm)
		assert.Check(l.t, time.Duration(o.DelayNS) >= l.threshold && uint64(o.DelayNS) == o.EndMono-o.StartMono,
			"delay %v from %d to %d, threshold %v", time.Duration(o.DelayNS), o.StartMono, o.EndMono, l.threshold)
		assert.Check(l.t, o.ThresholdNS == l.threshold.Nanoseconds(),
			"threshold %v, want %v", time.Duration(o.ThresholdNS), l.threshold)
	}
}

// times demands that reported lengths are the injected ones: none is longer,
// as it lies within, and half of them are hardly shorter. The others may be: how
// long the machine keeps a thread from its clock is up to it.
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
	assert.Check(l.t, at(500) <= tolerance,
		"half of the reported lengths are more than %v from the injected ones", tolerance)
}
