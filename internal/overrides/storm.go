package overrides

import (
	"cmp"
	"slices"
	"time"
)

// A rule that fires far too often slows down the whole machine, as each delay beyond
// its threshold is matched against its conditions. It is paused automatically, longer
// each time, until its threshold is fixed.
const (
	// StormWindow is the interval between calls of Storms.Update.
	StormWindow = 100 * time.Millisecond

	fastFactor, fastLeast = 50, 5000 // multiple of the rate, and limited outliers per second, that pause a rule after fastFor
	slowFactor            = 10       // multiple of the rate that pauses a rule after slowFor
	fastFor               = 200 * time.Millisecond
	slowFor               = 2 * time.Second
	calmPeriod            = time.Minute // minimum time without a pause that resets the backoff
)

// backoff is the duration of successive pauses; the last one repeats.
var backoff = [...]time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// Storm is an automatic pause of a rule.
type Storm struct {
	Rule      string
	Until     time.Time
	PerSecond float64 // outliers per second before the pause
	Pauses    int     // successive pauses, including this one
}

// Storms detects rules that fire far too often. Rate must be set before use. It is not
// safe for concurrent use.
type Storms struct {
	Rate  int // outliers per second and rule that reach the daemon; 0: no limit, no storms
	rules map[string]*ruleState
}

// ruleState is the state of one rule.
type ruleState struct {
	limited, passed uint64 // at the last update
	at              time.Time
	fast, slow      time.Time // since when the rate is exceeded; zero: not
	last            Storm     // last pause
	paused          bool
}

// Counts are the kernel side's counters of a rule.
type Counts struct{ Limited, Passed uint64 }

// Update processes the counters of all rules. It returns the pauses that begin and the
// names of the rules whose pause ends.
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

// rates returns the limited outliers and all outliers per second since the last update.
func (p *ruleState) rates(now time.Time, k Counts) (refused, all float64) {
	elapsed := max(now.Sub(p.at), time.Millisecond).Seconds()
	if k.Limited >= p.limited && k.Passed >= p.passed { // otherwise the counters belong to another rule
		refused = float64(k.Limited-p.limited) / elapsed
		all = refused + float64(k.Passed-p.passed)/elapsed
	}
	p.limited, p.passed, p.at = k.Limited, k.Passed, now
	return refused, all
}

// isStorm reports whether a rule has been limited for long enough. A short burst, as
// when all threads of a machine are late once, is no storm.
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

// pause starts a pause, longer than the previous one unless that was long ago.
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

// Paused returns the current automatic pause of a rule, if any.
func (s *Storms) Paused(rule string) (from Storm, ok bool) {
	p := s.rules[rule]
	if p == nil || !p.paused {
		return Storm{}, false
	}
	return p.last, true
}

// Rules returns the names of the paused rules, sorted.
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

// Reset ends the pause of a rule and clears its history; ok means it was paused. Call
// it when a rule is changed or resumed.
func (s *Storms) Reset(rule string) (ok bool) {
	p := s.rules[rule]
	if p == nil {
		return false
	}
	ok = p.paused
	p.paused, p.last, p.fast, p.slow = false, Storm{}, time.Time{}, time.Time{}
	return ok
}
