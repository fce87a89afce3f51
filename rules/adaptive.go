package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// Adaptive is a threshold that follows the load: Times the Quantile of the delays
// in the last Window, but at least Floor and at most Ceiling. With fewer than
// MinSamples there is no threshold, and nothing fires.
type Adaptive struct {
	Quantile   float64 // above 0.5, below 1
	Times      float64 // at least 1
	Floor      time.Duration
	Ceiling    time.Duration
	Window     time.Duration
	MinSamples uint64
}

// String returns a short form such as 2x p99.9.
func (a *Adaptive) String() string {
	return fmt.Sprintf("%gx p%g", a.Times, math.Round(a.Quantile*1e8)/1e6)
}

// Class is what divides a rule's histogram into classes.
type Class string

// What may divide a histogram.
const (
	NoClass    Class = ""
	ByDevice   Class = "device"
	BySyscall  Class = "syscall"
	ByCgroup   Class = "cgroup"
	ByOverride Class = "override"
)

// Histogram is the histogram of all delays that a rule applies to.
type Histogram struct {
	By      Class
	Classes int // maximum; the rest is in class "other". ByOverride has one per override.
}

// Bounds of adaptive thresholds and histograms.
const (
	minQuantile, maxQuantile = 0.5, 1
	maxTimes                 = 1000
	minWindow, maxWindow     = 10 * time.Second, 24 * time.Hour
	maxSamples               = 1_000_000_000
	defaultClasses           = 16
	maxClasses               = 256
)

var (
	adaptiveKeys  = []string{"quantile", "times", "floor", "ceiling", "window", "min_samples"}
	histogramKeys = []string{"by", "classes"}
)

// threshold reads a duration, or an adaptive threshold.
func (r *reader) threshold(n *yaml.Node) (time.Duration, *Adaptive) {
	if n.Kind == yaml.MappingNode {
		return 0, r.adaptive(n)
	}
	if n.Kind != yaml.ScalarNode || isNull(n) || n.Tag == "!!bool" {
		r.fail(n, DurationRange(minDuration, maxDuration)+", or a mapping with quantile", "threshold is %s", kindOf(n))
		return 0, nil
	}
	return r.duration(n, "threshold", minDuration, maxDuration), nil
}

func (r *reader) adaptive(n *yaml.Node) *Adaptive {
	a := &Adaptive{Times: 2, Floor: time.Millisecond, Ceiling: maxDuration, Window: 10 * time.Minute}
	keys := r.mapping(n, "threshold", adaptiveKeys)
	if keys == nil {
		return a
	}
	var ok bool
	if e, there := keys["quantile"]; there {
		if a.Quantile, ok = r.fraction(e.value, "quantile"); ok && (a.Quantile <= minQuantile || a.Quantile >= maxQuantile) {
			r.fail(e.value, "a number above 0.5 and below 1, such as 0.999", "quantile is %s", e.value.Value)
			a.Quantile = 0
		}
	} else {
		r.fail(n, "a quantile above 0.5 and below 1, such as 0.999", "threshold has no quantile")
	}
	if e, there := keys["times"]; there {
		if a.Times, ok = r.fraction(e.value, "times"); ok && (a.Times < 1 || a.Times > maxTimes) {
			r.fail(e.value, fmt.Sprintf("a number from 1 to %d, the multiple of the quantile", maxTimes), "times is %s",
				e.value.Value)
		}
	}
	if e, there := keys["floor"]; there {
		a.Floor = r.duration(e.value, "floor", minDuration, maxDuration)
	}
	if e, there := keys["ceiling"]; there {
		a.Ceiling = r.duration(e.value, "ceiling", minDuration, maxDuration)
		if a.Ceiling > 0 && a.Ceiling < a.Floor {
			r.fail(e.value, fmt.Sprintf("at least the floor, %s", shortDuration(a.Floor)), "ceiling %s is below the floor",
				shortDuration(a.Ceiling))
		}
	}
	if e, there := keys["window"]; there {
		a.Window = r.duration(e.value, "window", minWindow, maxWindow)
	}
	r.minSamples(keys, a)
	return a
}

// minSamples reads min_samples; the quantile needs a minimum.
func (r *reader) minSamples(keys map[string]entry, a *Adaptive) {
	least := uint64(2)
	if a.Quantile > 0 {
		least = uint64(math.Ceil(1/(1-a.Quantile) - 1e-6))
	}
	a.MinSamples = 10 * least
	e, ok := keys["min_samples"]
	if !ok {
		return
	}
	a.MinSamples, ok = r.number(e.value, "min_samples", 1, maxSamples)
	if ok && a.MinSamples < least {
		r.fail(e.value, fmt.Sprintf("an integer from %d to %d", least, maxSamples),
			"min_samples is %d, too few for the quantile %v", a.MinSamples, a.Quantile)
	}
}

// fraction reads a number that need not be an integer.
func (r *reader) fraction(n *yaml.Node, what string) (float64, bool) {
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float") {
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, true
		}
	}
	r.fail(n, "a number, such as 0.999", "%s is %s", what, kindOf(n))
	return 0, false
}

// classes lists what may divide the histogram of a tracker's rules.
var classes = map[Track][]Class{
	Wakeup:  {ByCgroup, ByOverride},
	OffCPU:  {BySyscall, ByCgroup, ByOverride},
	Syscall: {BySyscall, ByCgroup, ByOverride},
	Block:   {ByDevice, ByCgroup, ByOverride},
	IRQ:     {ByOverride},
	Softirq: {ByOverride},
	Pair:    {ByCgroup, ByOverride},
	Span:    {ByCgroup, ByOverride},

	Workqueue: {ByOverride},
	Activity:  {ByOverride},
}

// histogram reads true, false, or {by: …, classes: …}.
func (r *reader) histogram(n *yaml.Node, rule *Rule) {
	allowed, known := classes[rule.Track]
	if !known && rule.Track != "" {
		r.fail(n, "track "+join(histogramTracks()), "histogram does not apply to track %s", rule.Track)
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		if on, _ := r.boolean(n, "histogram"); on {
			rule.Histogram = &Histogram{}
		}
		return
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.fail(n, "true, false, or a mapping with by, classes", "histogram is %s", emptyOr(n))
		return
	}
	h := &Histogram{}
	rule.Histogram = h
	keys := r.mapping(n, "histogram", histogramKeys)
	e, by := keys["by"]
	if by && known {
		if got := words(r, e.value, "by", allowed); len(got) == 1 {
			h.By = got[0]
		} else if len(got) > 1 {
			r.fail(e.value, "one value", "by has %d values", len(got))
		}
	}
	if !by && keys != nil {
		r.fail(n, "by: "+join(allowed), "histogram has no by")
	}
	if h.By != NoClass && h.By != ByOverride {
		h.Classes = defaultClasses
	}
	if e, ok := keys["classes"]; ok {
		most, _ := r.number(e.value, "classes", 1, maxClasses)
		h.Classes = int(most)
		if h.By == ByOverride {
			r.fail(e.key, "by: override without classes", "classes does not apply to by: override")
		}
	}
}

// HasHistogram reports whether rules of a tracker can have a histogram.
func HasHistogram(t Track) bool { return classes[t] != nil }

func histogramTracks() []Track {
	var list []Track
	for _, t := range append(slices.Clone(Tracks), Activity) {
		if HasHistogram(t) {
			list = append(list, t)
		}
	}
	return list
}

// finishAdaptive gives a rule with an adaptive threshold the histogram that it needs.
func (r *reader) finishAdaptive(n *yaml.Node, rule *Rule) {
	if !rule.IsAdaptive() || rule.Track == "" {
		return
	}
	if _, known := classes[rule.Track]; !known {
		r.fail(n, "track "+join(histogramTracks()), "a threshold with quantile does not apply to track %s", rule.Track)
		return
	}
	by := NoClass
	if len(rule.Overrides) > 0 {
		by = ByOverride
	}
	switch {
	case rule.Histogram == nil:
		rule.Histogram = &Histogram{By: by}
	case rule.Histogram.By != by && rule.Histogram.By != NoClass:
		r.fail(n, "by: override, or a separate rule for this histogram",
			"a threshold with quantile cannot have a histogram by %s", rule.Histogram.By)
	default:
		rule.Histogram.By = by
	}
}

// IsAdaptive reports whether the rule or one of its overrides has an adaptive threshold.
func (r *Rule) IsAdaptive() bool {
	if r.Adaptive != nil {
		return true
	}
	for i := range r.Overrides {
		if r.Overrides[i].Adaptive != nil {
			return true
		}
	}
	return false
}

// Clamp limits a threshold to floor and ceiling; 0, none, is unchanged.
func (a *Adaptive) Clamp(threshold time.Duration) time.Duration {
	if threshold == 0 {
		return 0
	}
	return min(max(threshold, a.Floor), a.Ceiling)
}
