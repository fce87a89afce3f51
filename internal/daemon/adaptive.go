package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/adaptive"
)

// adaptThresholds updates adaptive thresholds once a second. Where there are none, it looks less
// often whether there are some.
func (d *daemon) adaptThresholds(ctx context.Context) error {
	for every := time.Second; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-pulse.After(every):
			if err := d.guard.Do(guard.Housekeeping, func() error { return d.thresholds.Tick(now) }); err != nil {
				// Keep the current thresholds.
				d.log.Warn("adaptive thresholds", zap.Error(err))
			}
			if every = time.Second; d.thresholds.Idle() {
				every = pulse.Calm
			}
		}
	}
}

// adaptiveInfo returns the state of an adaptive threshold of a rule or override, or nil
// if the threshold is fixed.
func (d *daemon) adaptiveInfo(rule, class string, spec *rules.Adaptive) *api.AdaptiveInfo {
	if spec == nil {
		return nil
	}
	s, _ := d.thresholds.State(rule, class)
	return newAdaptiveInfo(spec, &s)
}

func newAdaptiveInfo(spec *rules.Adaptive, s *adaptive.State) *api.AdaptiveInfo {
	return &api.AdaptiveInfo{
		Quantile: spec.Quantile, Times: spec.Times,
		FloorNS: spec.Floor.Nanoseconds(), CeilingNS: spec.Ceiling.Nanoseconds(), WindowNS: spec.Window.Nanoseconds(),
		MinSamples: spec.MinSamples, Samples: s.Samples, QuantileNS: s.QuantileNS,
		Quiet: s.Threshold == 0, ThresholdNS: s.Threshold.Nanoseconds(),
	}
}

// addDistribution adds a rule's current threshold and p99.9.
func (d *daemon) addDistribution(info *api.RuleInfo, r *rules.Rule, h *tracker.Histograms) {
	if r.Track == rules.Activity {
		d.addActivityDistribution(info, r)
		return
	}
	info.Adaptive = d.adaptiveInfo(r.Name, "", r.Adaptive)
	if info.Adaptive != nil {
		info.ThresholdNS = info.Adaptive.ThresholdNS
	}
	for i := range r.Overrides {
		if a := d.adaptiveInfo(r.Name, tracker.OverrideClass(&r.Overrides[i].When), r.Overrides[i].Adaptive); a != nil {
			info.Overrides = append(info.Overrides, api.OverrideInfo{Index: i + 1, Adaptive: *a})
		}
	}
	if h == nil || h.Rules[r.Name] == nil {
		return
	}
	all := h.Rules[r.Name].All()
	info.Samples, info.P999NS = all.Count, int64(all.Quantile(0.999))
}

// distributions reads all histograms, or returns nil.
func (d *daemon) distributions() *tracker.Histograms {
	h, err := d.kernel.Histograms()
	if err != nil {
		d.log.Warn("read histograms", zap.Error(err))
	}
	return h
}

// histogramLosses lists the delays missing in histograms or their classes.
func (d *daemon) histogramLosses(c *tracker.Counters) []api.Loss {
	list := []api.Loss{{
		Cause: "histogram_lost", Count: c.HistogramLost,
		Advice: "a CPU came online after start: restart tailcam",
	}}
	h := d.distributions()
	if h == nil {
		return list
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.rules {
		r := &d.rules[i]
		if of := h.Rules[r.Name]; of != nil {
			list = append(list, api.Loss{
				Cause: "histogram_undecided", Rule: r.Name, Tracker: string(r.Track), Count: of.Undecided,
				Advice: "the first delays of a new cgroup or device have no class; if there are many, the daemon is too slow",
			})
		}
	}
	return list
}

// Histograms implements api.Backend.
func (d *daemon) Histograms() ([]api.HistogramInfo, error) {
	h, err := d.kernel.Histograms()
	if err != nil {
		return nil, err
	}
	var list []api.HistogramInfo
	for _, track := range rules.Tracks {
		if one, ok := h.Trackers[track]; ok {
			list = append(list, api.NewHistogram(&one, api.HistogramInfo{Tracker: string(track)}))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.rules {
		r := &d.rules[i]
		of := h.Rules[r.Name]
		if of == nil {
			continue
		}
		if of.By != rules.NoClass {
			all := of.All()
			list = append(list, api.NewHistogram(&all, api.HistogramInfo{Rule: r.Name, Tracker: string(r.Track), Undecided: of.Undecided}))
		}
		for j := range of.Classes {
			c := &of.Classes[j]
			about := api.HistogramInfo{Rule: r.Name, Tracker: string(r.Track), By: string(of.By), Class: c.Name}
			if of.By == rules.NoClass {
				about.Undecided = of.Undecided
			}
			list = append(list, api.NewHistogram(&c.Histogram, about))
		}
	}
	return append(list, d.requestHistograms(d.rules)...), nil
}
