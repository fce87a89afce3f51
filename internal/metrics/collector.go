// Package metrics shows what the daemon counts to Prometheus. It keeps no second
// account: a scrape asks for what `tailcam status` shows, and Tally has the little
// that only passes by. docs/metrics.md lists every metric.
//
// The number of series depends on the rules, trackers and causes of loss alone: no
// label has what processes choose, but for at most 16 classes a rule and 256 names of activities.
package metrics

import (
	"context"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
)

// Source is what a scrape asks the daemon. One scrape at a time does.
type Source interface {
	Status(ctx context.Context) api.Status
	Histograms() ([]api.HistogramInfo, error)
	ActionStats() action.Stats
	SnapshotStats() snapshot.Stats // empty without a recorder
}

// Registry has all metrics.
type Registry = prometheus.Registry

// NewRegistry returns all metrics: the daemon's, those of its process and of the Go
// runtime. A panic of the source costs the rest of that scrape. The guard may be nil.
func NewRegistry(source Source, tally *Tally, g *guard.Guard) *Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		&collector{source: source, tally: tally, guard: g, classes: map[string]*classes{}},
		tally.durations,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// collector implements prometheus.Collector.
type collector struct {
	source Source
	tally  *Tally
	guard  *guard.Guard

	mu      sync.Mutex          // held for a whole scrape
	classes map[string]*classes // by rule
}

// scrape is the metrics of one scrape.
type scrape struct{ metrics []prometheus.Metric }

func (s *scrape) add(m prometheus.Metric) { s.metrics = append(s.metrics, m) }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range list() {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s scrape
	err := c.guard.Do(guard.Scrape, func() error { return c.collect(&s) })
	for _, m := range s.metrics {
		ch <- m
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(buildInfo.desc, err)
	}
}

func (c *collector) collect(s *scrape) error {
	status := c.source.Status(context.Background())
	s.add(buildInfo.of(1, status.Version, runtime.Version()))
	running := ruleMetrics(s, status.Rules)
	c.tally.collect(s, running)
	c.resultMetrics(s, status.Rules)
	storeMetrics(s, &status.Snapshots)
	recorderMetrics(s, &status.Recorder)
	tableMetrics(s, status.Tables)
	costMetrics(s, status.Cost)
	lossMetrics(s, status.Losses)
	if o := status.OTLP; o != nil {
		s.add(exportQueue.of(float64(o.Waiting)))
		s.add(exportSpool.of(float64(o.SpoolBytes)))
		for _, r := range o.Requests {
			s.add(exports.of(float64(r.Count), r.Signal, r.Result))
		}
	}
	if u := status.Upload; u != nil {
		s.add(uploads.of(float64(u.Sent-u.Existed), "sent"))
		s.add(uploads.of(float64(u.Existed), "existed"))
		s.add(uploads.of(float64(u.Failed), "failed"))
		s.add(uploadBytes.of(float64(u.SentBytes)))
		s.add(uploadQueue.of(float64(u.Waiting)))
		s.add(spoolBytes.of(float64(u.WaitingBytes)))
	}
	for _, p := range status.Panics {
		s.add(panics.of(float64(p.Count), p.Place))
	}
	return c.delayMetrics(s)
}

// ruleMetrics adds the state of the rules and returns their names.
func ruleMetrics(s *scrape, list []api.RuleInfo) []string {
	names := make([]string, 0, len(list))
	for i := range list {
		r := &list[i]
		names = append(names, r.Name)
		if r.ThresholdNS > 0 {
			s.add(ruleThreshold.of(seconds(r.ThresholdNS), r.Name))
		}
		if r.Stuck != nil {
			s.add(stuckWork.of(float64(*r.Stuck), r.Name, r.Track))
		}
		s.add(ruleActive.of(flag(r.Inactive == ""), r.Name))
		s.add(rulePaused.of(flag(r.Paused || r.Storm != nil), r.Name))
		s.add(ruleWorst.of(seconds(r.WorstNS), r.Name))
	}
	return names
}

// resultMetrics adds what became of snapshots and actions, but what Tally counts.
func (c *collector) resultMetrics(s *scrape, list []api.RuleInfo) {
	taken, acted := c.source.SnapshotStats(), c.source.ActionStats()
	for i := range list {
		r := &list[i]
		s.add(snapshots.of(float64(r.Suppressed), r.Name, "limited"))
		s.add(snapshots.of(float64(taken.Skipped[r.Name]), r.Name, "skipped"))
		actionMetrics(s, &acted, r.Name)
	}
	actionMetrics(s, &acted, manualRule)
}

// manualRule takes the place of the rule for snapshots that no rule asked for.
const manualRule = "manual"

func actionMetrics(s *scrape, acted *action.Stats, rule string) {
	for result, n := range map[string]uint64{
		"succeeded": acted.Succeeded[rule], "timed_out": acted.TimedOut[rule], "skipped": acted.Skipped[rule],
		"over_limit": acted.OverLimit[rule], "limited": acted.Limited[rule], "unmatched": acted.Unmatched[rule],
		"not_run": acted.NotRun[rule], "failed": acted.Failed[rule] - acted.TimedOut[rule] - acted.OverLimit[rule],
	} {
		s.add(actions.of(float64(n), rule, result))
	}
}

func storeMetrics(s *scrape, list *api.SnapshotsStatus) {
	s.add(snapshotsStored.of(float64(list.Count)))
	s.add(snapshotBytes.of(float64(list.Bytes)))
	s.add(snapshotsPinned.of(float64(list.Pinned)))
	for _, limit := range []string{"age", "bytes", "count"} {
		s.add(snapshotsRemoved.of(float64(list.Removed[limit]), limit))
	}
	if b := list.Boost; b != nil && b.Priority != "" {
		s.add(boosted.of(flag(b.Raised)))
		s.add(boosts.of(float64(b.Completed), "completed"))
		s.add(boosts.of(float64(b.Expired), "expired"))
		s.add(boosts.of(float64(b.Refused), "refused"))
		s.add(boostSeconds.of(seconds(b.CPUNS)))
	}
}

// recorderMetrics adds the recorder's, of all CPUs together.
func recorderMetrics(s *scrape, r *api.RecorderStatus) {
	if !r.Enabled || len(r.CPUs) == 0 {
		return
	}
	least := r.CPUs[0].CoveredNS
	var written, refused uint64
	for _, cpu := range r.CPUs {
		least = min(least, cpu.CoveredNS)
		written += cpu.Records
		refused += cpu.Lost
	}
	s.add(coverage.of(seconds(least)))
	s.add(records.of(float64(written)))
	s.add(recordsLost.of(float64(refused)))
}

func tableMetrics(s *scrape, list []api.TableStatus) {
	for _, t := range list {
		s.add(tableEntries.of(float64(t.Used), t.Name))
		s.add(tableCapacity.of(float64(t.Slots), t.Name))
	}
}

// costMetrics adds what tailcam costs; nil: no window is over.
func costMetrics(s *scrape, cost *api.CostStatus) {
	if cost == nil {
		return
	}
	s.add(overhead.of(cost.CPU))
	if cost.BudgetCPU > 0 {
		s.add(budgetCPU.of(cost.BudgetCPU))
	}
	for i := range cost.Programs {
		p := &cost.Programs[i]
		s.add(programSeconds.of(seconds(p.MeasuredNS), p.Program, "measured"))
		s.add(programSeconds.of(seconds(p.AssumedNS), p.Program, "assumed"))
	}
}

// lossMetrics adds the losses. Those of several trackers without a rule are added up.
// Two are not counts, but what there is now.
func lossMetrics(s *scrape, list []api.Loss) {
	type key struct{ cause, rule string }
	sums := map[key]uint64{}
	for _, l := range list {
		switch l.Cause {
		case "helper_stuck":
			s.add(stuck.of(float64(l.Count)))
		case "snapshot_unremovable":
			s.add(unremovable.of(float64(l.Count)))
		default:
			sums[key{l.Cause, l.Rule}] += l.Count
		}
	}
	for k, n := range sums {
		s.add(lost.of(float64(n), k.cause, k.rule))
	}
}

func (c *collector) delayMetrics(s *scrape) error {
	list, err := c.source.Histograms()
	if err != nil {
		return err
	}
	rules := map[string][]*api.HistogramInfo{}
	activities := map[string]*delayCounts{}
	for i := range list {
		switch h := &list[i]; {
		case h.Rule != "":
			rules[h.Rule] = append(rules[h.Rule], h)
		case h.By == api.ByName: // a bounded number, but of any names
			name := className(h.Class)
			if activities[name] == nil {
				activities[name] = &delayCounts{}
			}
			activities[name].add(h)
		default:
			var all delayCounts
			all.add(h)
			s.add(all.metric(delays, h.Tracker))
		}
	}
	for name, counts := range activities {
		s.add(counts.metric(activitySeconds, name))
	}
	for rule := range c.classes {
		if rules[rule] == nil {
			delete(c.classes, rule)
		}
	}
	for rule, parts := range rules {
		if c.classes[rule] == nil {
			c.classes[rule] = newClasses()
		}
		for class, counts := range c.classes[rule].divide(parts) {
			s.add(counts.metric(ruleDelays, rule, class))
		}
	}
	return nil
}

func seconds[N int64 | uint64](ns N) float64 { return float64(ns) / 1e9 }

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
