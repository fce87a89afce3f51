package metrics

import (
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// maxBlamed bounds the pairs of cause and culprit of one rule. Explanations
// know some 25 causes, each with few kinds of culprits.
const maxBlamed = 128

// Tally counts what only passes by: the daemon tells it of each outlier, snapshot
// and reload. Its methods may be called concurrently, and never wait for a scrape.
type Tally struct {
	durations prometheus.Histogram

	mu       sync.Mutex
	rules    map[string]*ruleTally
	reloads  [2]uint64 // failed, succeeded
	reloadOK bool      // the last one
	loaded   time.Time // last success
}

// ruleTally is what happened to one rule. Its name is empty for snapshots by hand.
type ruleTally struct {
	causes          map[events.Cause]*causeTally
	blamed          map[culprit]uint64 // nanoseconds
	written, failed uint64             // snapshots
}

// causeTally is a rule's outliers of one cause.
type causeTally struct {
	count, ns uint64
	snapshot  string // of the latest outlier that has one; empty: none yet
	trace     string // its own, in hexadecimal; empty: none
	time      time.Time
	delayNS   int64 // its own
}

// culprit is what an explanation blames. Neither has a name of a task.
type culprit struct{ cause, kind string }

// causes are those that every rule has, also while it has no outlier.
var causes = []events.Cause{events.CauseThreshold, events.CauseTimeout, events.CauseAfterTimeout}

// NewTally returns an empty tally; the rules count as loaded now.
func NewTally() *Tally {
	limits := prometheus.ExponentialBuckets(1.0/64, 2, 13) // 16 ms to 64 s
	return &Tally{
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namespace + "snapshot_duration_seconds",
			Help: "From the end of an outlier until its snapshot is on disk.", Buckets: limits,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
		rules: map[string]*ruleTally{}, reloadOK: true, loaded: time.Now(),
	}
}

// Outlier counts an outlier that is published for the first time.
func (t *Tally) Outlier(o *events.Outlier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.ruleLocked(o.Rule).cause(o.Cause)
	c.count++
	c.ns += uint64(max(o.DelayNS, 0))
}

// Outliers returns how many outliers were counted.
func (t *Tally) Outliers() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rules {
		for _, c := range r.causes {
			n += c.count
		}
	}
	return n
}

// Snapshot counts a snapshot that was written or has failed, and what its outliers
// are blamed on.
func (t *Tally) Snapshot(done *snapshot.Done) {
	rule := ""
	if len(done.Outliers) > 0 {
		rule = done.Outliers[0].Rule
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if done.Err != nil {
		t.ruleLocked(rule).failed++
		return
	}
	t.ruleLocked(rule).written++
	if rule != "" {
		t.durations.Observe(time.Duration(linux.Monotonic() - done.Outliers[0].EndMono).Seconds())
	}
	for i := range done.Outliers {
		o := &done.Outliers[i]
		r := t.ruleLocked(o.Rule)
		if c := r.cause(o.Cause); o.Time.After(c.time) {
			c.snapshot, c.time, c.delayNS, c.trace = done.ID, o.Time, o.DelayNS, ""
			if id, _, ok := o.TraceContext(); ok {
				c.trace = hex.EncodeToString(id[:])
			}
		}
		if e := o.Explained; e != nil {
			r.blame(culprit{e.Cause, e.ByKind}, e.NS)
		}
	}
}

// Reload counts a reload of the rules; err is its outcome.
func (t *Tally) Reload(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reloadOK = err == nil
	if err != nil {
		t.reloads[0]++
		return
	}
	t.reloads[1]++
	t.loaded = time.Now()
}

func (t *Tally) ruleLocked(name string) *ruleTally {
	r := t.rules[name]
	if r == nil {
		r = &ruleTally{causes: map[events.Cause]*causeTally{}, blamed: map[culprit]uint64{}}
		t.rules[name] = r
	}
	return r
}

func (r *ruleTally) cause(cause events.Cause) *causeTally {
	c := r.causes[cause]
	if c == nil {
		c = &causeTally{}
		r.causes[cause] = c
	}
	return c
}

func (r *ruleTally) blame(c culprit, ns int64) {
	if c.kind == "" {
		c.kind = "unknown"
	}
	if _, known := r.blamed[c]; !known && len(r.blamed) >= maxBlamed {
		c = culprit{"other", "unknown"}
	}
	r.blamed[c] += uint64(max(ns, 0))
}

// collect adds the metrics of the rules that run, and forgets all other rules.
func (t *Tally) collect(s *scrape, running []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range running {
		r := t.rules[name]
		if r == nil {
			r = &ruleTally{}
		}
		for _, cause := range causes {
			c := r.causes[cause]
			if c == nil {
				c = &causeTally{}
			}
			s.add(c.exemplar(outliers.of(float64(c.count), name, string(cause)), 1))
			s.add(c.exemplar(outlierSeconds.of(seconds(c.ns), name, string(cause)), seconds(c.delayNS)))
		}
		for c, ns := range r.blamed {
			s.add(blamed.of(seconds(ns), name, c.cause, c.kind))
		}
	}
	for _, name := range append([]string{""}, running...) {
		var r ruleTally
		if known := t.rules[name]; known != nil {
			r = *known
		}
		s.add(snapshots.of(float64(r.written), name, "written"))
		s.add(snapshots.of(float64(r.failed), name, "failed"))
	}
	if len(running) > 0 { // else they could not be read
		maps.DeleteFunc(t.rules, func(name string, _ *ruleTally) bool {
			return name != "" && !slices.Contains(running, name)
		})
	}
	s.add(reloads.of(float64(t.reloads[0]), "failed"))
	s.add(reloads.of(float64(t.reloads[1]), "succeeded"))
	s.add(reloadOK.of(flag(t.reloadOK)))
	s.add(reloadLastTime.of(float64(t.loaded.UnixMilli()) / 1e3))
}

// exemplar adds the latest snapshot, and its trace, to a metric.
func (c *causeTally) exemplar(m prometheus.Metric, value float64) prometheus.Metric {
	if c.snapshot == "" {
		return m
	}
	labels := prometheus.Labels{"snapshot_id": c.snapshot}
	if n := len(c.snapshot) + len("snapshot_id") + len("trace_id") + len(c.trace); c.trace != "" && n <= prometheus.ExemplarMaxRunes {
		labels["trace_id"] = c.trace
	}
	with, err := prometheus.NewMetricWithExemplars(m, prometheus.Exemplar{Value: value, Labels: labels, Timestamp: c.time})
	if err != nil { // an id that is too long: the count is worth more
		return m
	}
	return with
}
