package record

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// What is decided, and when: see docs/decisions/0065-record.md.
const (
	confidence = 0.99 // of each interval
	replicates = 1000
	// tolerance is the change of a delay or a rate that does not count: about the width of
	// a histogram's bucket.
	tolerance = 0.1
	// shareTolerance is that of a culprit's share.
	shareTolerance = 0.1
	// minSlices is how many slices of each run must have delays, and minBeyond how many
	// delays there must be beyond a percentile.
	minSlices = 8
	minBeyond = 10
	// maxCulprits is how many culprits of a rule are compared.
	maxCulprits = 10
)

// Outcomes of a comparison.
const (
	Slower    = "slower"
	Faster    = "faster"
	More      = "more"
	Fewer     = "fewer"
	Same      = "same"      // the interval is within the tolerance
	Undecided = "undecided" // the interval is wider than that, or there is too little to say
)

// Comparison is a run beside earlier ones.
type Comparison struct {
	Of         string        `json:"of,omitempty"` // runs, snapshots or histograms, by tailcam diff
	Confidence float64       `json:"confidence"`   // of each interval
	Baselines  []BaselineRun `json:"baselines"`
	After      *BaselineRun  `json:"after,omitempty"` // what is compared with them, by tailcam diff
	Rules      []RuleShift   `json:"rules"`
	Notes      []string      `json:"notes,omitempty"`
}

// BaselineRun is an earlier run.
type BaselineRun struct {
	File       string    `json:"file"`
	Time       time.Time `json:"time"`
	Version    string    `json:"version"`
	Host       string    `json:"host"`
	Kernel     string    `json:"kernel"`
	DurationNS int64     `json:"duration_ns"`
}

// RuleShift is how a rule's delays, outliers and culprits differ.
type RuleShift struct {
	Rule     string       `json:"rule"`
	Delays   []Shift      `json:"delays"`         // p50, p90, p99, p99.9
	Outliers *Shift       `json:"outliers"`       // in a minute; null: not comparable, see Note
	Culprits []ShareShift `json:"culprits"`       // largest first
	Note     string       `json:"note,omitempty"` // why something is missing
}

// Shift is how a number differs.
type Shift struct {
	Of      string  `json:"of"`
	Before  float64 `json:"before"` // delays in nanoseconds
	After   float64 `json:"after"`
	Ratio   float64 `json:"ratio"` // After to Before; of rates with half an outlier added to both
	Low     float64 `json:"low"`   // the interval of Ratio
	High    float64 `json:"high"`
	Outcome string  `json:"outcome"`       // slower, faster (of outliers more, fewer), same, undecided
	Why     string  `json:"why,omitempty"` // too little to say
}

// ShareShift is how the share of outliers that a culprit caused differs.
type ShareShift struct {
	Name    string  `json:"name"` // empty: unexplained
	Kind    string  `json:"kind"`
	Before  float64 `json:"before"` // share, 0 to 1
	After   float64 `json:"after"`
	Low     float64 `json:"low"` // the interval of the difference
	High    float64 `json:"high"`
	Outcome string  `json:"outcome"` // more, fewer, same, undecided
}

// Compare compares the run with earlier ones, of which there is at least one.
func (r *Report) Compare(baselines []Baseline) { r.compare(baselines, Runs) }

// compare is Compare for a kind of Set.
func (r *Report) compare(baselines []Baseline, kind string) {
	c := &Comparison{Confidence: confidence, Rules: []RuleShift{}}
	for i := range baselines {
		b := &baselines[i]
		c.Baselines = append(c.Baselines, BaselineRun{b.File, b.Time, b.Version, b.Host, b.Kernel, b.DurationNS})
		if kind != Histograms && (b.CPUs != r.CPUs || b.Kernel != r.Kernel) {
			c.Notes = append(c.Notes, fmt.Sprintf("%s: recorded with %d CPUs and kernel %s, this run with %d and %s",
				b.File, b.CPUs, b.Kernel, r.CPUs, r.Kernel))
		}
	}
	if len(baselines) == 1 {
		c.Notes = append(c.Notes, "one baseline does not show how runs differ by themselves: name five or more for that")
	}
	for i := range r.Rules {
		c.Rules = append(c.Rules, compareRule(r, &r.Rules[i], baselines, kind))
	}
	switch {
	case kind == Snapshots:
		c.Notes = append(c.Notes, snapshotsNote)
	case kind == Histograms && fewParts(r, baselines):
		c.Notes = append(c.Notes, readingsNote)
	}
	r.Compared = c
}

// slower reports whether a percentile of the rule is decidedly slower.
func (r *Report) slower(rule string) bool {
	if r.Compared == nil {
		return false
	}
	for i := range r.Compared.Rules {
		if s := &r.Compared.Rules[i]; s.Rule == rule {
			return slices.ContainsFunc(s.Delays, func(d Shift) bool { return d.Outcome == Slower })
		}
	}
	return false
}

// What the reader of a comparison of sets must know.
const (
	snapshotsNote = "of the outliers that have snapshots: how often they came is not compared, as snapshots are limited, and the worst are kept"
	readingsNote  = "of too few readings nothing is decided: let `tailcam histogram -o json` append to one file, nine times or more, " +
		"such as once a minute: what came between shows how delays vary"
)

// fewParts reports whether some run has too few readings to decide anything.
func fewParts(r *Report, baselines []Baseline) bool {
	few := func(r *Report) bool {
		return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return len(rule.Slices) < minSlices })
	}
	return few(r) || slices.ContainsFunc(baselines, func(b Baseline) bool { return few(&b.Report) })
}

func compareRule(r *Report, rule *Rule, baselines []Baseline, kind string) RuleShift {
	shift := RuleShift{Rule: rule.Name, Delays: []Shift{}, Culprits: []ShareShift{}}
	after := newSample(r, rule)
	var before []*sample
	thresholds := true
	for i := range baselines {
		old := baselines[i].rule(rule.Name)
		if old == nil || old.Track != rule.Track {
			continue
		}
		before = append(before, newSample(&baselines[i].Report, old))
		thresholds = thresholds && old.ThresholdNS == rule.ThresholdNS && old.TimeoutNS == rule.TimeoutNS
	}
	if len(before) == 0 {
		shift.Note = "no baseline has this rule with this tracker"
		return shift
	}
	if !thresholds && kind == Snapshots {
		shift.Note = "its thresholds differ: outliers are not compared"
		return shift
	}
	b := newBootstrap(after, before)
	for i, p := range percentiles {
		shift.Delays = append(shift.Delays, b.delay(i, p.name, p.quantile))
	}
	switch {
	case kind == Histograms:
		return shift
	case !thresholds:
		shift.Note = "its thresholds differ: outliers and culprits are not compared"
		return shift
	case kind == Runs:
		rate := b.rate()
		shift.Outliers = &rate
	}
	shift.Culprits = compareCulprits(after, before)
	return shift
}

var percentiles = [...]struct {
	name     string
	quantile float64
}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}}

// delay compares a percentile.
func (b *bootstrap) delay(i int, name string, quantile float64) Shift {
	s := b.shift(i, name, Slower, Faster)
	beyond := float64(b.after.total.Count) * (1 - quantile)
	all := float64(0)
	short := slicesWithDelays(b.after)
	for _, one := range b.before {
		all += float64(one.total.Count) * (1 - quantile)
		short = min(short, slicesWithDelays(one))
	}
	switch {
	case min(beyond, all) < minBeyond:
		s.Outcome, s.Why = Undecided, fmt.Sprintf("fewer than %d delays beyond it", minBeyond)
	case short < minSlices:
		s.Outcome, s.Why = Undecided, fmt.Sprintf("a run has delays in fewer than %d parts of it", minSlices)
	}
	return s
}

func slicesWithDelays(s *sample) (n int) {
	for i := range s.slices {
		if len(s.slices[i].Index) > 0 {
			n++
		}
	}
	return n
}

// rate compares the outliers of a minute.
func (b *bootstrap) rate() Shift {
	s := b.shift(len(percentiles), "outliers a minute", More, Fewer)
	s.Before, s.After = 0, perMinute(b.after.outliers(), b.after.seconds)
	n, seconds := uint64(0), float64(0)
	for _, one := range b.before {
		n, seconds = n+one.outliers(), seconds+one.seconds
	}
	s.Before = perMinute(n, seconds)
	return s
}

func perMinute(n uint64, seconds float64) float64 { return 60 * float64(n) / seconds }

// shift makes the interval of a number out of the replicates.
func (b *bootstrap) shift(i int, of, up, down string) Shift {
	low, high := interval(b.ratios[i])
	s := Shift{
		Of: of, Before: math.Exp(b.meanBefore(i)), After: math.Exp(b.after.logs[i]),
		Ratio: math.Exp(b.after.logs[i] - b.meanBefore(i)), Low: math.Exp(low), High: math.Exp(high),
	}
	s.Outcome = outcome(low, high, math.Log1p(tolerance), up, down)
	return s
}

// outcome decides on an interval of differences.
func outcome(low, high, tolerated float64, up, down string) string {
	switch {
	case low > tolerated:
		return up
	case high < -tolerated:
		return down
	case low >= -tolerated && high <= tolerated:
		return Same
	}
	return Undecided
}

// interval is the middle part of the replicates.
func interval(values []float64) (low, high float64) {
	slices.Sort(values)
	tail := (1 - confidence) / 2
	n := float64(len(values) - 1)
	return values[int(math.Floor(tail*n))], values[int(math.Ceil((1-tail)*n))]
}

// compareCulprits compares whose outliers they were.
func compareCulprits(after *sample, before []*sample) []ShareShift {
	list := []ShareShift{}
	old, now := clusters(before...), clusters(after)
	if len(old) == 0 || len(now) == 0 {
		return list
	}
	whos := map[who]bool{}
	for _, c := range slices.Concat(old, now) {
		for w := range c.of {
			whos[w] = true
		}
	}
	for w := range whos {
		list = append(list, ShareShift{Name: w.name, Kind: w.kind, Before: share(old, w), After: share(now, w)})
	}
	slices.SortFunc(list, func(a, b ShareShift) int {
		return cmp.Or(cmp.Compare(max(b.Before, b.After), max(a.Before, a.After)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	list = list[:min(len(list), maxCulprits)]
	for i := range list {
		s := &list[i]
		s.Low, s.High = interval(shareReplicates(now, old, who{s.Name, s.Kind}))
		s.Outcome = outcome(s.Low, s.High, shareTolerance, More, Fewer)
	}
	return list
}
