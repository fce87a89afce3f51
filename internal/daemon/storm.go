package daemon

import (
	"context"
	"math"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/overrides"
	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// stormCalm is how long after the last outlier rules are looked at less often.
const stormCalm = time.Second

// outlierCame has rules looked at soon. It does not block.
func (d *daemon) outlierCame() {
	select {
	case d.came <- struct{}{}:
	default:
	}
}

// watchStorms pauses rules that fire far too often and resumes them later.
func (d *daemon) watchStorms(ctx context.Context) error {
	next := pulse.After(pulse.Calm)
	var last time.Time // when an outlier came
	for calm := true; ; {
		came := d.came
		if !calm { // looked at soon, however many come
			came = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-came:
			last, calm = time.Now(), false
			next = time.After(overrides.StormWindow)
		case now := <-next:
			if err := d.checkStorms(now); err != nil {
				d.log.Warn("pause rules that fire too often", zap.Error(err))
			}
			if len(d.came) > 0 {
				<-d.came
				last = now
			}
			if calm = now.Sub(last) >= stormCalm; calm {
				next = pulse.After(pulse.Calm)
			} else {
				next = time.After(overrides.StormWindow)
			}
		}
	}
}

func (d *daemon) checkStorms(now time.Time) error {
	d.change.Lock()
	defer d.change.Unlock()
	counted, err := d.kernel.Pressures()
	if err != nil {
		return err
	}
	list := make(map[string]overrides.Counts, len(counted))
	for name, k := range counted {
		list[name] = overrides.Counts{Limited: k.Limited, Passed: k.Outliers}
	}
	d.mu.Lock()
	begin, end := d.storms.Update(now, list)
	d.mu.Unlock()
	if len(begin) == 0 && len(end) == 0 {
		return nil
	}
	if err := d.hold(); err != nil {
		return err
	}
	d.logStorms(now, begin)
	for _, name := range end {
		d.log.Info("rule resumed after an automatic pause", zap.String("rule", name))
	}
	return nil
}

// hold pauses the rules that fire too often, and those that the budget sheds.
// Requires d.change.
func (d *daemon) hold() error {
	d.mu.Lock()
	held := append(d.storms.Rules(), d.cost.heldRules()...)
	d.mu.Unlock()
	return d.kernel.Hold(held)
}

// logStorms logs a suggestion for each rule being paused.
func (d *daemon) logStorms(now time.Time, begin []overrides.Storm) {
	var h *tracker.Histograms
	if len(begin) > 0 {
		h = d.distributions()
	}
	for i := range begin {
		s := &begin[i]
		fields := []zap.Field{
			zap.String("rule", s.Rule), zap.Int("per_second", int(s.PerSecond)), zap.Int("limit", d.now.Load().Outliers.Rate),
			zap.Duration("for", s.Until.Sub(now)),
		}
		if r := d.rule(s.Rule); r != nil {
			if all, ok := distributionOf(h, r); ok {
				fields = append(fields, zap.Duration("p99", time.Duration(all.Quantile(0.99))), zap.Duration("p99.9", time.Duration(all.Quantile(0.999))))
			}
			if t := d.sensibleThreshold(h, r, now); t > 0 {
				fields = append(fields, zap.String("consider", "threshold: "+t.String()))
			}
		}
		d.log.Warn("rule paused automatically: it fires too often", fields...)
	}
}

// distributionOf returns the histogram of the rule, or else of its tracker.
func distributionOf(h *tracker.Histograms, r *rules.Rule) (all histogram.Histogram, ok bool) {
	if h == nil {
		return all, false
	}
	if own := h.Rules[r.Name]; own != nil {
		all = own.All()
	} else {
		all = h.Trackers[r.Track]
	}
	return all, all.Count > 0
}

// sensibleThreshold returns the threshold that would have fired about once a minute
// since the start; 0: unknown, or not above the rule's own.
func (d *daemon) sensibleThreshold(h *tracker.Histograms, r *rules.Rule, now time.Time) time.Duration {
	all, ok := distributionOf(h, r)
	if !ok {
		return 0
	}
	t := roundUp(time.Duration(all.Quantile(1 - now.Sub(d.start).Minutes()/float64(all.Count))))
	if t <= r.Threshold {
		return 0
	}
	return t
}

// roundUp rounds up to two digits.
func roundUp(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	unit := math.Pow10(max(int(math.Log10(float64(d)))-1, 0))
	return time.Duration(math.Ceil(float64(d)/unit) * unit)
}

// resetChangedStorms ends the automatic pauses of changed rules. Requires d.change.
func (d *daemon) resetChangedStorms(before, after []rules.Rule) error {
	old := make(map[string]rules.Rule, len(before))
	for _, r := range before {
		old[r.Name] = normalized(r)
	}
	changed := false
	d.mu.Lock()
	for _, r := range after {
		if was, ok := old[r.Name]; !ok || !reflect.DeepEqual(was, normalized(r)) {
			changed = d.storms.Reset(r.Name) || changed
		}
	}
	d.mu.Unlock()
	if !changed {
		return nil
	}
	return d.hold()
}

// normalized returns the rule without position and pause, for comparison.
func normalized(r rules.Rule) rules.Rule {
	r.Pos, r.Paused = rules.Position{}, false
	return r
}

// endStorm ends an automatic pause; ok means there was one. Requires d.change.
func (d *daemon) endStorm(rule string) (ok bool, err error) {
	d.mu.Lock()
	ok = d.storms.Reset(rule)
	d.mu.Unlock()
	if !ok {
		return false, nil
	}
	return true, d.hold()
}

// stormInfo returns the automatic pause of a rule, or nil. Requires d.mu.
func (d *daemon) stormInfo(r *rules.Rule, h *tracker.Histograms, now time.Time) *api.StormInfo {
	s, ok := d.storms.Paused(r.Name)
	if !ok {
		return nil
	}
	return &api.StormInfo{
		Until: s.Until.UTC(), LeftNS: left(s.Until, now), PerSecond: uint64(s.PerSecond), Pauses: s.Pauses,
		ConsiderNS: d.sensibleThreshold(h, r, now).Nanoseconds(),
	}
}
