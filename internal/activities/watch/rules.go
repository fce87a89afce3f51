package watch

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/adaptive"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// Firing is an activity that passed a limit of a rule, and the rule's own limits.
type Firing struct {
	*Record
	Rule          *rules.Rule
	Cause         events.Cause
	Limit         time.Duration // that it has passed
	WantsSnapshot bool
	Suppressed    uint64 // snapshots of the rule that were limited since its last one
}

// State is what has become of a rule.
type State struct {
	Seen       uint64 // activities that ended and that the rule applies to
	Outliers   uint64
	Limited    uint64 // outliers beyond the rate
	Suppressed uint64 // snapshots beyond the rule's limit
	WorstNS    int64
}

// maxLimiters bounds the users whose outliers are limited apart.
const maxLimiters = 64

// ruleState is a rule with what it has counted.
type ruleState struct {
	rule      rules.Rule
	state     State
	outliers  map[uint32]*rate.Limiter // by user
	snapshots *rate.Limiter
	skipped   uint64 // snapshots since the last one

	// Of the rule itself and then of its overrides: all delays, and who follows them.
	classes []class
	updated uint64 // when thresholds were updated
}

// class is the part of a rule's activities that one limit is for.
type class struct {
	histogram histogram.Histogram
	follower  *adaptive.Follower // nil: a fixed threshold
	state     adaptive.State
}

// appliedRule is a rule that may apply to activities of a process: all conditions but
// those on names hold.
type appliedRule struct{ *ruleState }

// Set replaces the rules. Others than those of activities are left out. What a rule has
// counted stays if one of that name was there.
func (w *Watcher) Set(list []rules.Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var next []*ruleState
	for _, r := range rules.Activities(list) {
		i := slices.IndexFunc(w.rules, func(s *ruleState) bool { return s.rule.Name == r.Name })
		var before *ruleState
		if i >= 0 {
			before = w.rules[i]
		}
		next = append(next, w.newRule(&r, before))
	}
	w.rules = next
	w.version++
}

func (w *Watcher) newRule(r *rules.Rule, before *ruleState) *ruleState {
	s := &ruleState{rule: *r, outliers: map[uint32]*rate.Limiter{}}
	s.snapshots = rate.NewLimiter(rate.Every(r.Snapshot.Every), r.Snapshot.Burst)
	s.classes = make([]class, 1+len(r.Overrides))
	for i := range s.classes {
		spec := r.Adaptive
		if i > 0 {
			spec = r.Overrides[i-1].Adaptive
		}
		if spec != nil {
			s.classes[i].follower = adaptive.New(*spec)
		}
	}
	if before == nil {
		return s
	}
	s.state, s.skipped = before.state, before.skipped
	if before.rule.Snapshot == r.Snapshot {
		s.snapshots = before.snapshots
	}
	if len(before.classes) != len(s.classes) {
		return s
	}
	for i := range s.classes {
		c := &s.classes[i]
		c.histogram = before.classes[i].histogram
		if sameSpec(r, &before.rule, i) {
			c.follower, c.state = before.classes[i].follower, before.classes[i].state
		}
	}
	return s
}

func sameSpec(a, b *rules.Rule, class int) bool {
	x, y := a.Adaptive, b.Adaptive
	if class > 0 {
		x, y = a.Overrides[class-1].Adaptive, b.Overrides[class-1].Adaptive
	}
	return x != nil && y != nil && *x == *y
}

// SetRate changes Options.Rate and Options.Burst.
func (w *Watcher) SetRate(perSecond, burst int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opts.Rate, w.opts.Burst = perSecond, burst
	for _, s := range w.rules {
		clear(s.outliers)
	}
}

// tick updates thresholds that follow the load, once a second. Requires w.mu.
func (w *Watcher) tick(now uint64) {
	for _, s := range w.rules {
		if now-s.updated < uint64(time.Second) {
			continue
		}
		s.updated = now
		for i := range s.classes {
			c := &s.classes[i]
			if c.follower == nil {
				continue
			}
			before := c.state.Threshold
			c.state = c.follower.Update(time.Unix(0, int64(now)), &c.histogram)
			if d := c.state.Threshold - before; d.Abs() > before/32 {
				w.version++ // processes are told
			}
		}
	}
}

// facts are what the conditions of rules ask of a process's activity.
func (f *followed) facts(name string) *rules.Facts {
	return &rules.Facts{
		Comm: f.identity.Comm, PID: uint32(f.process.PID()), UID: f.process.UID(), Place: f.identity.Place, Name: name, Syscall: -1,
	}
}

// applyRules finds the rules that may apply to a process, and the lowest threshold of
// them. Requires w.mu.
func (w *Watcher) applyRules(f *followed) {
	f.version, f.applied = w.version, nil
	facts := f.facts("")
	lowest := uint64(math.MaxUint64)
	for _, s := range w.rules {
		when := s.rule.When
		when.Name, when.NotName = nil, nil
		if s.rule.Paused || !when.Matches(facts) {
			continue
		}
		f.applied = append(f.applied, &appliedRule{s})
		for i := range s.classes {
			if t := s.limits(i).Threshold; t > 0 {
				lowest = min(lowest, uint64(t))
			}
		}
	}
	if lowest == math.MaxUint64 {
		lowest = 0
	}
	if f.threshold != lowest || !f.told {
		f.process.SetThreshold(lowest)
		f.threshold, f.told = lowest, true
	}
	for i := range f.elements { // timeouts may have changed
		if e := &f.elements[i]; e.live != nil {
			e.deadline = 1
		}
	}
}

// classOf is the class of an activity: that of the first override whose conditions hold.
func (s *ruleState) classOf(facts *rules.Facts) int {
	for i := range s.rule.Overrides {
		if s.rule.Overrides[i].When.Matches(facts) {
			return i + 1
		}
	}
	return 0
}

// limits are those of a class, as of now.
func (s *ruleState) limits(class int) rules.Limits {
	l := rules.Limits{Threshold: s.rule.Threshold, Timeout: s.rule.Timeout}
	follows := &s.classes[0]
	if class > 0 {
		l = s.rule.LimitsOf(class - 1)
		if o := &s.rule.Overrides[class-1]; o.Adaptive != nil || o.Threshold > 0 {
			follows = &s.classes[class]
		}
	}
	if follows.follower != nil {
		l.Threshold = follows.state.Threshold
	}
	return l
}

// thresholds applies the rules to an activity that has ended. Requires w.mu.
func (w *Watcher) thresholds(f *followed, r *Record, fired []firedRule) {
	facts := f.facts(r.Name)
	for _, a := range f.applied {
		if !a.rule.When.Matches(facts) {
			continue
		}
		class := a.classOf(facts)
		limits := a.limits(class)
		a.state.Seen++
		a.classes[class].histogram.Add(r.Elapsed(), 1)
		timedOut := slices.ContainsFunc(fired, func(d firedRule) bool { return d.rule.rule.Name == a.rule.Name })
		switch {
		case timedOut:
			w.fire(a.ruleState, r, events.CauseAfterTimeout, limits.Timeout)
		case limits.Threshold > 0 && r.Elapsed() >= uint64(limits.Threshold):
			w.fire(a.ruleState, r, events.CauseThreshold, limits.Threshold)
		}
	}
}

// timeouts applies the rules to an activity that is live. Requires w.mu.
func (w *Watcher) timeouts(f *followed, e *element, token uint32, t *Token, account *Values, now uint64) {
	if e.deadline == 0 || now < e.deadline {
		return
	}
	var r *Record
	facts := f.facts(t.Name)
	e.deadline = 0
	for _, a := range f.applied {
		if !a.rule.When.Matches(facts) {
			continue
		}
		limits := a.limits(a.classOf(facts))
		if limits.Timeout == 0 {
			continue
		}
		if r == nil {
			r = w.liveRecord(f, e, token, t, account, now)
		}
		due := w.due(a.ruleState, e.live, r, uint64(limits.Timeout), now)
		if due > 0 && (e.deadline == 0 || due < e.deadline) {
			e.deadline = due
		}
	}
}

// due fires a timeout that is due, and returns when it is the next time; 0: never.
func (w *Watcher) due(s *ruleState, l *live, r *Record, timeout, now uint64) uint64 {
	i := slices.IndexFunc(l.fired, func(d firedRule) bool { return d.rule.rule.Name == s.rule.Name })
	at := r.Begin + timeout
	switch {
	case i >= 0 && s.rule.Repeat == 0:
		return 0
	case i >= 0:
		at = l.fired[i].at + uint64(s.rule.Repeat)
	}
	if now < at {
		return at
	}
	if i < 0 {
		l.fired = append(l.fired, firedRule{rule: s, at: now})
	} else {
		l.fired[i].at = now
	}
	w.fire(s, r, events.CauseTimeout, time.Duration(timeout))
	if s.rule.Repeat == 0 {
		return 0
	}
	return now + uint64(s.rule.Repeat)
}

// fire reports an outlier, if the limits of its rule allow that. Requires w.mu.
func (w *Watcher) fire(s *ruleState, r *Record, cause events.Cause, limit time.Duration) {
	now := time.Unix(0, int64(w.opts.Now()))
	s.state.WorstNS = max(s.state.WorstNS, int64(r.Elapsed()))
	if !w.limiter(s, r.UID).AllowN(now, 1) {
		s.state.Limited++
		return
	}
	s.state.Outliers++
	rule := s.rule
	f := &Firing{Record: r, Rule: &rule, Cause: cause, Limit: limit}
	switch {
	case !rule.Snapshot.Enabled:
	case !s.snapshots.AllowN(now, 1):
		s.state.Suppressed++
		s.skipped++
	default:
		f.WantsSnapshot, f.Suppressed = true, s.skipped
		s.skipped = 0
	}
	w.opts.Fire(f)
}

// limiter limits the outliers of one rule and user. Requires w.mu.
func (w *Watcher) limiter(s *ruleState, uid uint32) *rate.Limiter {
	if l := s.outliers[uid]; l != nil {
		return l
	}
	if len(s.outliers) >= maxLimiters {
		uid = math.MaxUint32 // no user's: all others together
		if l := s.outliers[uid]; l != nil {
			return l
		}
	}
	l := rate.NewLimiter(rate.Inf, 1)
	if w.opts.Rate > 0 {
		l = rate.NewLimiter(rate.Limit(w.opts.Rate), max(w.opts.Burst, 1))
	}
	s.outliers[uid] = l
	return l
}

// State returns the state of a rule; ok is false if there is none of that name.
func (w *Watcher) State(rule string) (s State, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rules {
		if r.rule.Name == rule {
			return r.state, true
		}
	}
	return State{}, false
}

// Adaptive returns the state of a threshold that follows the load: of override i from 1
// on, or of the rule itself for 0.
func (w *Watcher) Adaptive(rule string, i int) (adaptive.State, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rules {
		if r.rule.Name == rule && i < len(r.classes) && r.classes[i].follower != nil {
			return r.classes[i].state, true
		}
	}
	return adaptive.State{}, false
}

// Histogram returns the elapsed times of all activities that a rule applied to.
func (w *Watcher) Histogram(rule string) (h histogram.Histogram, ok bool) {
	list := w.Classes(rule)
	for i := range list {
		h.Merge(&list[i])
	}
	return h, list != nil
}

// Classes returns the parts of Histogram: those to which no override applied, and then those
// of each override. Nil: there is no such rule.
func (w *Watcher) Classes(rule string) []histogram.Histogram {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.rules, func(r *ruleState) bool { return r.rule.Name == rule })
	if i < 0 {
		return nil
	}
	list := make([]histogram.Histogram, len(w.rules[i].classes))
	for j := range list {
		list[j] = w.rules[i].classes[j].histogram
	}
	return list
}
