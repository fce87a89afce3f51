package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// Kinds of Set.
const (
	Runs       = "runs"       // reports of `tailcam record`
	Snapshots  = "snapshots"  // directories and packs
	Histograms = "histograms" // what `tailcam histogram -o json` printed
)

// HistogramSchema is the value of the field schema of a histogram.
const HistogramSchema = "tailcam/histogram/v1"

// Limits of a set, which may come from anywhere.
const (
	maxReadings = 1 << 16 // of histograms
	maxOutliers = 1 << 18
)

// Set is one side of a comparison: one run, or several.
type Set struct {
	Kind string
	Runs []Baseline
}

// MaxSetFile bounds a file of runs or histograms, in bytes.
const MaxSetFile = maxBaselineFile

// ReadSet reads a file that has reports of runs, or readings of histograms.
func ReadSet(path string) (*Set, error) {
	f, err := openBaseline(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return DecodeSet(path, f)
}

// DecodeSet does the same with a file that is open, and called path. Readings of one
// histogram that follow one another are taken for one run: what came between them are its
// parts.
func DecodeSet(path string, f io.ReadSeeker) (*Set, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	switch err := json.NewDecoder(io.LimitReader(f, maxBaselineFile)).Decode(&head); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty")
	case err != nil:
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	from := io.LimitReader(f, maxBaselineFile)
	switch head.Schema {
	case Schema:
		runs, err := decodeBaselines(path, from)
		return &Set{Runs, runs}, err
	case HistogramSchema:
		run, err := decodeReadings(path, from)
		if err != nil {
			return nil, err
		}
		return &Set{Histograms, []Baseline{*run}}, nil
	}
	return nil, fmt.Errorf("its schema is %.100q: name what `tailcam record -O FILE` or `tailcam histogram -o json` wrote", head.Schema)
}

// decodeReadings reads histograms, one object after the other.
func decodeReadings(path string, from io.Reader) (*Baseline, error) {
	type key struct{ rule, track, by, class string }
	readings, order := map[key][]histogram.Histogram{}, []key{}
	dec := json.NewDecoder(from)
	for n := 0; ; n++ {
		var one struct {
			Schema string `json:"schema"`
			api.HistogramInfo
		}
		err := dec.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		k := key{one.Rule, one.Tracker, one.By, one.Class}
		switch {
		case err != nil:
			return nil, fmt.Errorf("histogram %d: %w", n+1, err)
		case one.Schema != HistogramSchema:
			return nil, fmt.Errorf("histogram %d: its schema is %.100q, not %q", n+1, one.Schema, HistogramSchema)
		case n == maxReadings:
			return nil, fmt.Errorf("more than %d histograms", maxReadings)
		case readings[k] == nil && len(readings) == maxRules:
			return nil, fmt.Errorf("more than %d different histograms", maxRules)
		}
		h, err := fromBuckets(one.Buckets)
		if err != nil {
			return nil, fmt.Errorf("histogram %d: %w", n+1, err)
		}
		if readings[k] == nil {
			order = append(order, k)
		}
		readings[k] = append(readings[k], h)
	}
	run := &Baseline{File: path, Report: Report{DurationNS: 1e9, SliceNS: 1e9}}
	for _, k := range order {
		rule := Rule{Name: k.rule, Track: k.track, Slices: parts(readings[k])}
		if k.rule == "" {
			rule.Name = "tracker " + k.track
		}
		if k.class != "" {
			rule.Name += " " + k.by + " " + k.class
		}
		run.Rules = append(run.Rules, rule)
	}
	return run, run.check()
}

func fromBuckets(list []api.BucketInfo) (h histogram.Histogram, err error) {
	for _, b := range list {
		i := histogram.Index(b.ToNS)
		switch from, to := histogram.Bounds(i); {
		case from != b.FromNS || to != b.ToNS:
			return h, fmt.Errorf("no bucket is from %d to %d ns", b.FromNS, b.ToNS)
		case b.Count > maxCount-h.Count:
			return h, errors.New("more delays than there can be")
		}
		h.Bucket[i] += b.Count
		h.Count += b.Count
	}
	return h, nil
}

// parts returns what came between readings, in at most maxSlices parts; of a single reading,
// all of it.
func parts(readings []histogram.Histogram) []Slice {
	var list []Slice
	if len(readings) == 1 {
		return append(list, sliceOf(&readings[0]))
	}
	each := (len(readings) - 2 + maxSlices) / maxSlices
	for i := 1; i < len(readings); i += each {
		var h histogram.Histogram
		for j := i; j < min(i+each, len(readings)); j++ {
			d := readings[j].Sub(&readings[j-1])
			h.Merge(&d)
		}
		list = append(list, sliceOf(&h))
	}
	return list
}

func sliceOf(h *histogram.Histogram) (s Slice) {
	for i, n := range h.Bucket {
		if n > 0 {
			s.Index, s.Count = append(s.Index, i), append(s.Count, n)
		}
	}
	return s
}

// ended is an outlier of a snapshot, as far as it is compared.
type ended struct {
	at        time.Time
	rule      Rule // its name, tracker and threshold
	delay     int64
	explained *events.Explained
}

// SnapshotSet makes a run of the outliers of snapshots, each once. file names them. The first
// error of the snapshots ends it.
func SnapshotSet(file string, metas iter.Seq2[*snapshot.Meta, error]) (*Set, error) {
	run := Baseline{File: file}
	var all []ended
	seen := map[string]bool{}
	for m, err := range metas {
		if err != nil {
			return nil, err
		}
		run.Host, run.Kernel, run.Version = common(run.Host, m.Host.Name), common(run.Kernel, m.Host.Kernel), common(run.Version, m.Host.Tailcam)
		run.CPUs = max(run.CPUs, len(m.Coverage))
		for i := range m.Outliers {
			o := &m.Outliers[i]
			// Earlier releases had no ids. A timeout is told again at its end.
			id := fmt.Sprintf("%s %s %d %d %v", m.Host.BootID, o.Rule, o.StartMono, o.Task.TID, o.Key)
			if o.Cause == events.CauseTimeout || o.Cause == events.CauseTrigger || o.DelayNS < 0 || seen[id] {
				continue
			}
			if len(all) == maxOutliers {
				return nil, fmt.Errorf("more than %d outliers: name fewer snapshots", maxOutliers)
			}
			seen[id] = true
			all = append(all, ended{o.Time, Rule{Name: o.Rule, Track: o.Track, ThresholdNS: o.ThresholdNS}, o.DelayNS, o.Explained})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no snapshot has an outlier that ended")
	}
	slices.SortStableFunc(all, func(a, b ended) int { return a.at.Compare(b.at) })
	run.Time = all[0].at
	run.DurationNS = min(max(all[len(all)-1].at.Sub(run.Time), time.Second), maxRunTime).Nanoseconds()
	run.SliceNS = run.DurationNS/maxSlices + 1
	run.addOutliers(all)
	return &Set{Snapshots, []Baseline{run}}, nil
}

// common is what two say, if that is the same.
func common(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return "several"
}

// addOutliers sorts outliers into rules and slices of time.
func (b *Baseline) addOutliers(all []ended) {
	type slots map[int64]*histogram.Histogram
	type name struct{ rule, track string }
	at, counts := map[name]int{}, map[name]slots{}
	for k := range all {
		o := &all[k]
		n := name{o.rule.Name, o.rule.Track}
		i, ok := at[n]
		if !ok {
			i = len(b.Rules)
			at[n], counts[n] = i, slots{}
			b.Rules = append(b.Rules, o.rule)
			b.Rules[i].TimeoutNS = o.rule.ThresholdNS
		}
		rule := &b.Rules[i]
		// The least and the largest threshold that an outlier had.
		rule.ThresholdNS, rule.TimeoutNS = min(rule.ThresholdNS, o.rule.ThresholdNS), max(rule.TimeoutNS, o.rule.ThresholdNS)
		v := Verdict{AtNS: min(max(o.at.Sub(b.Time).Nanoseconds(), 0), b.DurationNS), DelayNS: o.delay}
		if e := o.explained; e != nil {
			v.Cause, v.By, v.ByKind = e.Cause, e.By, e.ByKind
			rule.Verdicts = append(rule.Verdicts, v)
		}
		rule.Outliers++
		slot := v.AtNS / b.SliceNS
		if counts[n][slot] == nil {
			counts[n][slot] = &histogram.Histogram{}
		}
		counts[n][slot].Add(uint64(o.delay), 1)
	}
	for n, i := range at {
		for slot := range b.DurationNS/b.SliceNS + 1 {
			var one Slice
			if h := counts[n][slot]; h != nil {
				one = sliceOf(h)
			}
			b.Rules[i].Slices = append(b.Rules[i].Slices, one)
		}
	}
}

// CompareSets compares a run, the last one of to, with those of from.
func CompareSets(from []*Set, to *Set) (*Comparison, error) {
	var before []Baseline
	for _, s := range from {
		if s.Kind != to.Kind {
			return nil, fmt.Errorf("cannot compare %s with %s: name two of a kind", s.Kind, to.Kind)
		}
		before = append(before, s.Runs...)
	}
	switch {
	case len(to.Runs) != 1:
		return nil, fmt.Errorf("to: %d runs: name one", len(to.Runs))
	case len(before) > maxBaselines:
		return nil, fmt.Errorf("from: more than %d runs: name fewer", maxBaselines)
	}
	after := &to.Runs[0]
	after.compare(before, to.Kind)
	c := after.Compared
	c.Of, c.After = to.Kind, &BaselineRun{after.File, after.Time, after.Version, after.Host, after.Kernel, after.DurationNS}
	for i := range before {
		for j := range before[i].Rules {
			if name := before[i].Rules[j].Name; after.rule(name) == nil && len(c.Notes) < maxNotes {
				c.Notes = append(c.Notes, fmt.Sprintf("%s: only in %s", name, before[i].File))
			}
		}
	}
	return c, nil
}

// maxNotes bounds those of a comparison of sets.
const maxNotes = 20
