package overrides

import (
	"cmp"
	"slices"
	"time"
)

// A rule that fires senselessly costs the whole machine: each delay past its
// threshold is held against its conditions. It is paused by itself, for longer
// each time, until its threshold makes sense.
const (
	// StormWindow is how often Storms.Look is to be called.
	StormWindow = 100 * time.Millisecond

	fastFactor, fastLeast = 50, 5000 // times the rate, and refused a second, that end a rule after fastFor
	slowFactor            = 10       // times the rate that end it after slowFor
	fastFor               = 200 * time.Millisecond
	slowFor               = 2 * time.Second
	calmPeriod            = time.Minute // without a pause, as long as the last one at least: the next one is a first one
)

// backoff is how long the first pauses of a rule last; all others as the last.
var backoff = [...]time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// Storm is a rule that was paused by itself.
type Storm struct {
	Rule      string
	Until     time.Time
	PerSecond float64 // outliers that it wanted
	Pauses    int     // in a row, with this one
}

// Storms finds rules that fire senselessly. The zero value is not ready: Rate
// must be set. It is not safe for concurrent use.
type Storms struct {
	Rate  int // outliers of a rule that reach the daemon a second; 0: no limit, and no storms
	rules map[string]*ruleState
}

// ruleState is how a rule does.
type ruleState struct {
	limited, passed uint64 // at the last look
	at              time.Time
	fast, slow      time.Time // since when it is refused so often; zero: it is not
	last            Storm     // the last pause
	paused          bool
}

// Counts is what the kernel side has counted of a rule.
type Counts struct{ Limited, Passed uint64 }

// Update judges what the rules have done since the last look. It returns those
// that are to be paused from now on, and the names of those whose pause ends.
func (s *Storms) Update(now time.Time, rules map[string]Counts) (begin []Storm, end []string) {
	if s.rules == nil {
		s.rules = map[string]*ruleState{}
	}
	for name, p := range s.rules {
		if _, ok := rules[name]; !ok {
			if p.paused {
				end = append(end, name)
			}
			delete(s.rules, name)
		}
	}
	for name, k := range rules {
		p := s.rules[name]
		if p == nil {
			s.rules[name] = &ruleState{limited: k.Limited, passed: k.Passed, at: now}
			continue
		}
		refused, all := p.rates(now, k)
		if p.paused {
			if !now.Before(p.last.Until) {
				p.paused = false
				end = append(end, name)
			}
			continue
		}
		if s.isStorm(p, now, refused) {
			p.pause(name, now, all)
			begin = append(begin, p.last)
		}
	}
	slices.SortFunc(begin, func(a, b Storm) int { return cmp.Compare(a.Rule, b.Rule) })
	slices.Sort(end)
	return begin, end
}

// rates are the outliers a second since the last look: refused, and all.
func (p *ruleState) rates(now time.Time, k Counts) (refused, all float64) {
	elapsed := max(now.Sub(p.at), time.Millisecond).Seconds()
	if k.Limited >= p.limited && k.Passed >= p.passed { // else another rule had the number
		refused = float64(k.Limited-p.limited) / elapsed
		all = refused + float64(k.Passed-p.passed)/elapsed
	}
	p.limited, p.passed, p.at = k.Limited, k.Passed, now
	return refused, all
}

// isStorm reports whether the rule has been refused so often for so long. One
// bad moment of the machine, in which all of its threads are late, is none.
func (s *Storms) isStorm(p *ruleState, now time.Time, refused float64) bool {
	if s.Rate <= 0 {
		return false
	}
	lasts := func(since *time.Time, above bool, most time.Duration) bool {
		if !above {
			*since = time.Time{}
			return false
		}
		if since.IsZero() {
			*since = now
		}
		return now.Sub(*since) >= most
	}
	fast := lasts(&p.fast, refused >= max(float64(s.Rate)*fastFactor, fastLeast), fastFor)
	slow := lasts(&p.slow, refused >= float64(s.Rate)*slowFactor, slowFor)
	return fast || slow
}

// pause begins a pause, longer than the last one if that was not long ago.
func (p *ruleState) pause(name string, now time.Time, all float64) {
	last := p.last
	n := last.Pauses
	if n > 0 && now.Sub(last.Until) > max(calmPeriod, backoffOf(n)) {
		n = 0
	}
	p.last = Storm{Rule: name, Until: now.Add(backoffOf(n + 1)), PerSecond: all, Pauses: n + 1}
	p.paused, p.fast, p.slow = true, time.Time{}, time.Time{}
}

func backoffOf(pauses int) time.Duration { return backoff[min(pauses, len(backoff))-1] }

// Paused returns the storm for which a rule is paused now.
func (s *Storms) Paused(rule string) (from Storm, ok bool) {
	p := s.rules[rule]
	if p == nil || !p.paused {
		return Storm{}, false
	}
	return p.last, true
}

// Rules lists the names of the rules that are paused now, in order.
func (s *Storms) Rules() []string {
	var names []string
	for name, p := range s.rules {
		if p.paused {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Reset ends the pause of a rule, and forgets those before; ok: it was paused.
// It is for a rule that was changed, or that somebody resumed.
func (s *Storms) Reset(rule string) (ok bool) {
	p := s.rules[rule]
	if p == nil {
		return false
	}
	ok = p.paused
	p.paused, p.last, p.fast, p.slow = false, Storm{}, time.Time{}, time.Time{}
	return ok
}
