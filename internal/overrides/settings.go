// Package overrides holds the settings made at run time: thresholds and pauses of
// rules, and automatic pauses. Settings.Apply returns the rules that result.
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

// MaxThresholds is the maximum number of thresholds.
const MaxThresholds = 256

// Limits of a duration.
const (
	minDuration = 100 * time.Millisecond
	maxDuration = 30 * 24 * time.Hour
)

// Threshold is a threshold set at run time.
type Threshold struct {
	ID    int
	Rule  string
	When  map[string][]string // as given; empty: the whole rule
	Limit rules.Override      // parsed When, and the limits
	Until time.Time           // zero: until cleared
	By    string
}

// Pause is a pause of a rule.
type Pause struct {
	Rule  string
	Until time.Time // zero: until resumed
	By    string
}

// Settings is an immutable set of settings. Methods that change it return a copy, which
// is dropped if the kernel side rejects it.
type Settings struct {
	thresholds []Threshold // oldest first
	pauses     []Pause
	lastID     int
}

// ParseEnd parses a duration and returns its end; "": none.
func ParseEnd(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	d, err := rules.ParseDuration(s, minDuration, maxDuration)
	if err != nil {
		return time.Time{}, fmt.Errorf("for %w; allowed: %s", err, rules.DurationRange(minDuration, maxDuration))
	}
	return now.Add(d), nil
}

// SetThreshold adds a threshold with a new id. It replaces thresholds of the same rule
// and conditions that would have no effect any more.
func (s Settings) SetThreshold(t Threshold) (Settings, Threshold, error) {
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

// conditions come from other processes, so their number is limited here. Package rules
// checks their meaning.
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

// AllIDs stands for all thresholds of a rule.
const AllIDs = 0

// ClearThresholds removes one or AllIDs thresholds of a rule, or of all rules if rule
// is empty, and returns them.
func (s Settings) ClearThresholds(rule string, id int) (after Settings, gone []Threshold, err error) {
	after = s
	after.thresholds = nil
	for _, t := range s.thresholds {
		if (rule == "" || t.Rule == rule) && (id == AllIDs || t.ID == id) {
			gone = append(gone, t)
		} else {
			after.thresholds = append(after.thresholds, t)
		}
	}
	if id != AllIDs && len(gone) == 0 {
		return s, nil, fmt.Errorf("rule %s has no threshold %d set: see tailcam threshold list", rule, id)
	}
	return after, gone, nil
}

// Pause pauses a rule, replacing an earlier pause.
func (s Settings) Pause(p Pause) Settings {
	after, _ := s.Resume(p.Rule)
	after.pauses = append(after.pauses, p)
	return after
}

// Resume ends the pause of a rule; ok means there was one.
func (s Settings) Resume(rule string) (after Settings, ok bool) {
	after = s
	after.pauses = slices.DeleteFunc(slices.Clone(s.pauses), func(p Pause) bool { return p.Rule == rule })
	return after, len(after.pauses) < len(s.pauses)
}

// Thresholds returns the thresholds, newest first. The first match applies.
func (s Settings) Thresholds() []Threshold {
	list := slices.Clone(s.thresholds)
	slices.Reverse(list)
	return list
}

// Paused returns the pause of a rule, if any.
func (s Settings) Paused(rule string) (p Pause, ok bool) {
	i := slices.IndexFunc(s.pauses, func(p Pause) bool { return p.Rule == rule })
	if i < 0 {
		return p, false
	}
	return s.pauses[i], true
}

// NextExpiry returns the earliest end, if any.
func (s Settings) NextExpiry() (next time.Time, ok bool) {
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

// Expire removes settings that have ended and describes them.
func (s Settings) Expire(now time.Time) (after Settings, gone []string) {
	ended := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return s.filter(func(t *Threshold) string {
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

// Reconcile removes settings that do not fit new rule files: the rule is gone, or its
// tracker has no such condition. It describes what it removed.
func (s Settings) Reconcile(file []rules.Rule, host rules.Machine) (after Settings, gone []string) {
	find := func(name string) *rules.Rule {
		i := slices.IndexFunc(file, func(r rules.Rule) bool { return r.Name == name })
		if i < 0 {
			return nil
		}
		return &file[i]
	}
	return s.filter(func(t *Threshold) string {
		r := find(t.Rule)
		if r == nil {
			return "the rule is gone"
		}
		// Check the limits alone: how they compare with others was checked when they
		// were set.
		alone := *r
		alone.Threshold, alone.Timeout, alone.Adaptive = 0, 0, nil
		limit, err := rules.ParseOverride(&alone, t.When, durationText(t.Limit.Threshold), durationText(t.Limit.Timeout), host)
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

// durationText formats a duration; 0: "".
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// filter removes settings for which the functions return a reason.
func (s Settings) filter(threshold func(*Threshold) string, pause func(*Pause) string) (after Settings, gone []string) {
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

// String describes the threshold: "threshold 3 of rule wakeup (pid=1234)".
func (t *Threshold) String() string {
	s := fmt.Sprintf("threshold %d of rule %s", t.ID, t.Rule)
	if len(t.When) > 0 {
		s += " (" + WhenText(t.When) + ")"
	}
	return s
}

// WhenText formats conditions as on the command line: "comm=postgres,pg* pid=7".
func WhenText(when map[string][]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(when)) {
		list = append(list, key+"="+strings.Join(when[key], ","))
	}
	return strings.Join(list, " ")
}

// Apply returns the rules with the settings applied, leaving file unchanged. Thresholds
// with conditions precede the rule's overrides, newest first; those without replace the
// rule's limits.
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
