// Package overrides holds what is changed while the daemon runs and is in no file:
// thresholds that were set, and rules that are paused. It changes nothing
// itself: Apply says what rules come of it.
package overrides

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/rules"
)

// MaxThresholds is how many may be set at once.
const MaxThresholds = 256

// Bounds of how long something lasts.
const (
	minFor = 100 * time.Millisecond
	maxFor = 30 * 24 * time.Hour
)

// Threshold is one that was set.
type Threshold struct {
	ID    int
	Rule  string
	When  map[string][]string // as given; empty: for all that the rule is about
	Limit rules.Override      // When in the rules' form, and the limits
	Until time.Time           // zero: until it is cleared
	By    string
}

// Pause is of one rule.
type Pause struct {
	Rule  string
	Until time.Time // zero: until it is resumed
	By    string
}

// Settings are all of them. It is a value: what changes it returns another one,
// so that a change that the kernel side refuses is simply forgotten.
type Settings struct {
	thresholds []Threshold // the oldest first
	pauses     []Pause
	lastID     int
}

// ParseFor reads how long something lasts and returns its end; "": none.
func ParseFor(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	d, err := rules.ParseDuration(s, minFor, maxFor)
	if err != nil {
		return time.Time{}, fmt.Errorf("for %w; allowed: %s", err, rules.DurationRange(minFor, maxFor))
	}
	return now.Add(d), nil
}

// Set adds a threshold and gives it an id. Those that it replaces for good are
// gone: of the same rule and conditions, with no limit that it lacks, and that
// would not outlast it.
func (s Settings) Set(t Threshold) (Settings, Threshold, error) {
	if err := conditions(t.When).check(); err != nil {
		return s, t, fmt.Errorf("rule %s: %w", t.Rule, err)
	}
	after := s
	after.thresholds = slices.DeleteFunc(slices.Clone(s.thresholds), func(o Threshold) bool {
		return o.Rule == t.Rule && maps.EqualFunc(o.When, t.When, slices.Equal) && !outlasts(o.Until, t.Until) &&
			(o.Limit.Threshold == 0 || t.Limit.Threshold > 0) && (o.Limit.Timeout == 0 || t.Limit.Timeout > 0)
	})
	if len(after.thresholds) >= MaxThresholds {
		return s, t, fmt.Errorf("%d thresholds are set already: clear some of them (see tailcam threshold list)", MaxThresholds)
	}
	after.lastID++
	t.ID = after.lastID
	after.thresholds = append(after.thresholds, t)
	return after, t, nil
}

// outlasts reports whether a ends after b; a zero time never ends.
func outlasts(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && !b.IsZero()
	}
	return a.After(b)
}

// conditions are bounded here, as they come from other processes; what they mean is checked by rules.
type conditions map[string][]string

func (c conditions) check() error {
	n := 0
	for _, list := range c {
		n += len(list)
	}
	const most = 1024
	if n > most {
		return fmt.Errorf("%d values in the conditions: at most %d", n, most)
	}
	return nil
}

// All means, in place of an id, every one.
const All = 0

// Clear removes a rule's thresholds, one or All of them, and returns them.
// Without a rule, it removes those of all rules.
func (s Settings) Clear(rule string, id int) (after Settings, gone []Threshold, err error) {
	after = s
	after.thresholds = nil
	for _, t := range s.thresholds {
		if (rule == "" || t.Rule == rule) && (id == All || t.ID == id) {
			gone = append(gone, t)
		} else {
			after.thresholds = append(after.thresholds, t)
		}
	}
	if id != All && len(gone) == 0 {
		return s, nil, fmt.Errorf("rule %s has no threshold %d set: see tailcam threshold list", rule, id)
	}
	return after, gone, nil
}

// Pause lets a rule fire nothing until its end, or until it is resumed. A
// pause that is there already is replaced.
func (s Settings) Pause(p Pause) Settings {
	after, _ := s.Resume(p.Rule)
	after.pauses = append(after.pauses, p)
	return after
}

// Resume ends the pause of a rule; ok: there was one.
func (s Settings) Resume(rule string) (after Settings, ok bool) {
	after = s
	after.pauses = slices.DeleteFunc(slices.Clone(s.pauses), func(p Pause) bool { return p.Rule == rule })
	return after, len(after.pauses) < len(s.pauses)
}

// Thresholds lists those that are set, the newest first: the first that
// matches wins.
func (s Settings) Thresholds() []Threshold {
	list := slices.Clone(s.thresholds)
	slices.Reverse(list)
	return list
}

// Paused returns the pause of a rule.
func (s Settings) Paused(rule string) (p Pause, ok bool) {
	i := slices.IndexFunc(s.pauses, func(p Pause) bool { return p.Rule == rule })
	if i < 0 {
		return p, false
	}
	return s.pauses[i], true
}

// Next is when the first of them ends; ok: one does.
func (s Settings) Next() (next time.Time, ok bool) {
	look := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(next)) {
			next, ok = t, true
		}
	}
	for i := range s.thresholds {
		look(s.thresholds[i].Until)
	}
	for i := range s.pauses {
		look(s.pauses[i].Until)
	}
	return next, ok
}

// Expire removes those that have ended, and says which.
func (s Settings) Expire(now time.Time) (after Settings, gone []string) {
	ended := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return s.keep(func(t *Threshold) string {
		if ended(t.Until) {
			return "expired"
		}
		return ""
	}, func(p *Pause) string {
		if ended(p.Until) {
			return "expired"
		}
		return ""
	})
}

// Follow removes what makes no sense with new rule files: the rule is gone, or
// its tracker has no such condition. It says which, and why.
func (s Settings) Follow(file []rules.Rule, host rules.Machine) (after Settings, gone []string) {
	find := func(name string) *rules.Rule {
		i := slices.IndexFunc(file, func(r rules.Rule) bool { return r.Name == name })
		if i < 0 {
			return nil
		}
		return &file[i]
	}
	return s.keep(func(t *Threshold) string {
		r := find(t.Rule)
		if r == nil {
			return "the rule is gone"
		}
		// Of the limits only its own count: which of them is the lower one was
		// looked at when it was set, and with others set beside it.
		alone := *r
		alone.Threshold, alone.Timeout, alone.Adaptive = 0, 0, nil
		limit, err := rules.ParseOverride(&alone, t.When, text(t.Limit.Threshold), text(t.Limit.Timeout), host)
		if err != nil {
			return err.Error()
		}
		t.Limit = limit
		return ""
	}, func(p *Pause) string {
		if find(p.Rule) == nil {
			return "the rule is gone"
		}
		return ""
	})
}

// text is a duration as it was given; "": none.
func text(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// keep asks for each whether there is a reason to drop it.
func (s Settings) keep(threshold func(*Threshold) string, pause func(*Pause) string) (after Settings, gone []string) {
	after = Settings{lastID: s.lastID}
	for _, t := range s.thresholds {
		if why := threshold(&t); why != "" {
			gone = append(gone, fmt.Sprintf("%s: %s", t.String(), why))
			continue
		}
		after.thresholds = append(after.thresholds, t)
	}
	for _, p := range s.pauses {
		if why := pause(&p); why != "" {
			gone = append(gone, fmt.Sprintf("pause of rule %s: %s", p.Rule, why))
			continue
		}
		after.pauses = append(after.pauses, p)
	}
	return after, gone
}

// String names it for people: "threshold 3 of rule wakeup (pid=1234)".
func (t *Threshold) String() string {
	s := fmt.Sprintf("threshold %d of rule %s", t.ID, t.Rule)
	if len(t.When) > 0 {
		s += " (" + WhenText(t.When) + ")"
	}
	return s
}

// WhenText is conditions as the command line has them: "comm=postgres,pg* pid=7".
func WhenText(when map[string][]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(when)) {
		list = append(list, key+"="+strings.Join(when[key], ","))
	}
	return strings.Join(list, " ")
}

// Apply returns the rules of the files as they are to run: thresholds with
// conditions come before the overrides of the rule, the newest first; those
// without replace the rule's own limits. file stays as it is.
func (s Settings) Apply(file []rules.Rule) ([]rules.Rule, error) {
	list := slices.Clone(file)
	overrides := 0
	for i := range list {
		r := &list[i]
		var mine []rules.Override
		var threshold, timeout time.Duration
		for _, t := range s.Thresholds() {
			switch {
			case t.Rule != r.Name:
			case len(t.When) > 0:
				mine = append(mine, t.Limit)
			default:
				threshold = cmp.Or(threshold, t.Limit.Threshold)
				timeout = cmp.Or(timeout, t.Limit.Timeout)
			}
		}
		*r = r.WithLimits(threshold, timeout)
		r.Overrides = append(mine, r.Overrides...)
		overrides += len(r.Overrides)
		_, r.Paused = s.Paused(r.Name)
	}
	if overrides > rules.MaxOverrides {
		return nil, fmt.Errorf("%d overrides, with those of the rule files, but the kernel side holds %d: clear some (see tailcam threshold list)",
			overrides, rules.MaxOverrides)
	}
	return list, nil
}
