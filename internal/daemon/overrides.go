package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/overrides"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// apply activates rules from files with settings applied, or changes nothing. Requires
// d.change.
func (d *daemon) apply(file []rules.Rule, settings overrides.Settings) error {
	list, err := settings.Apply(file)
	if err != nil {
		return err
	}
	if err := d.kernel.Swap(list); err != nil {
		return err
	}
	d.triggers.Set(list)
	if d.requests != nil {
		d.requests.Set(list)
	}
	d.useDeclared(list)
	before := d.rules
	d.mu.Lock()
	d.file, d.rules, d.settings = file, list, settings
	d.mu.Unlock()
	if err := d.resetChangedStorms(before, list); err != nil {
		return err
	}
	if err := d.rest(); err != nil {
		return err
	}
	select {
	case d.changed <- struct{}{}:
	default: // expire is notified already
	}
	return nil
}

// expire removes settings at their end.
func (d *daemon) expire(ctx context.Context) error {
	const again = time.Second // retry after a failure
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.changed:
		case <-timer.C:
		}
		var wait time.Duration
		err := d.guard.Do(guard.Housekeeping, func() (err error) {
			wait, err = d.expireNow(time.Now())
			return err
		})
		if err != nil {
			d.log.Error("cannot end expired runtime settings", zap.Error(err))
			wait = again
		}
		timer.Reset(wait)
	}
}

// expireNow returns the time until the next setting ends.
func (d *daemon) expireNow(now time.Time) (time.Duration, error) {
	d.change.Lock()
	defer d.change.Unlock()
	after, gone := d.settings.Expire(now)
	if len(gone) > 0 {
		if err := d.apply(d.file, after); err != nil {
			return 0, err
		}
		d.log.Info("expired", zap.Strings("settings", gone))
	}
	next, ok := after.NextExpiry()
	if !ok {
		return time.Hour, nil // a change wakes expire earlier
	}
	return max(time.Until(next), 0), nil
}

// checkRule returns an error if a rule does not exist.
func (d *daemon) checkRule(name string) error {
	if d.rule(name) == nil {
		return fmt.Errorf("unknown rule %q: see \"tailcam list rules\"", name)
	}
	return nil
}

// SetThreshold implements api.Backend.
func (d *daemon) SetThreshold(req *api.ThresholdRequest, by string) (api.ThresholdInfo, error) {
	d.change.Lock()
	defer d.change.Unlock()
	now := time.Now()
	if err := d.checkRule(req.Rule); err != nil {
		return api.ThresholdInfo{}, err
	}
	until, err := overrides.ParseEnd(req.For, now)
	if err != nil {
		return api.ThresholdInfo{}, err
	}
	if d.rule(req.Rule).Track == rules.Trigger {
		return api.ThresholdInfo{}, fmt.Errorf("rule %s is a trigger and has no threshold: change its file, and see \"tailcam reload\"", req.Rule)
	}
	// Check against the running rule: it may have a timeout set earlier.
	limit, err := rules.ParseOverride(d.rule(req.Rule), req.When, req.Threshold, req.Timeout, &rules.LocalMachine{})
	if err != nil {
		return api.ThresholdInfo{}, err
	}
	after, set, err := d.settings.SetThreshold(overrides.Threshold{Rule: req.Rule, When: req.When, Limit: limit, Until: until, By: by})
	if err != nil {
		return api.ThresholdInfo{}, err
	}
	if err := d.apply(d.file, after); err != nil {
		return api.ThresholdInfo{}, fmt.Errorf("rule %s: %w", req.Rule, err)
	}
	return thresholdInfo(&set, now), nil
}

// Thresholds implements api.Backend.
func (d *daemon) Thresholds() []api.ThresholdInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	return thresholdInfos(d.settings.Thresholds())
}

func thresholdInfos(list []overrides.Threshold) []api.ThresholdInfo {
	now := time.Now()
	infos := make([]api.ThresholdInfo, len(list))
	for i := range list {
		infos[i] = thresholdInfo(&list[i], now)
	}
	return infos
}

func thresholdInfo(t *overrides.Threshold, now time.Time) api.ThresholdInfo {
	return api.ThresholdInfo{
		ID: t.ID, Rule: t.Rule, When: t.When, By: t.By, LeftNS: left(t.Until, now),
		ThresholdNS: t.Limit.Threshold.Nanoseconds(), TimeoutNS: t.Limit.Timeout.Nanoseconds(),
	}
}

// left returns the nanoseconds left; 0: no end.
func left(until, now time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	return max(until.Sub(now).Nanoseconds(), 1)
}

// ClearThresholds implements api.Backend.
func (d *daemon) ClearThresholds(rule string, id int) ([]api.ThresholdInfo, error) {
	d.change.Lock()
	defer d.change.Unlock()
	if rule != "" {
		if err := d.checkRule(rule); err != nil {
			return nil, err
		}
	}
	after, gone, err := d.settings.ClearThresholds(rule, id)
	if err != nil || len(gone) == 0 {
		return nil, err
	}
	if err := d.apply(d.file, after); err != nil {
		return nil, err
	}
	return thresholdInfos(gone), nil
}

// ResetRatchet implements api.Backend.
func (d *daemon) ResetRatchet(rule string) error { return d.kernel.ResetRatchet(rule) }

// Pause implements api.Backend.
func (d *daemon) Pause(req *api.PauseRequest, by string) error {
	d.change.Lock()
	defer d.change.Unlock()
	if err := d.checkRule(req.Rule); err != nil {
		return err
	}
	until, err := overrides.ParseEnd(req.For, time.Now())
	if err != nil {
		return err
	}
	return d.apply(d.file, d.settings.Pause(overrides.Pause{Rule: req.Rule, Until: until, By: by}))
}

// Resume implements api.Backend.
func (d *daemon) Resume(rule string) error {
	d.change.Lock()
	defer d.change.Unlock()
	if err := d.checkRule(rule); err != nil {
		return err
	}
	stormy, err := d.endStorm(rule)
	if err != nil {
		return err
	}
	after, ok := d.settings.Resume(rule)
	if !ok && !stormy {
		return fmt.Errorf("rule %s is not paused", rule)
	}
	if !ok {
		return nil
	}
	return d.apply(d.file, after)
}

// addOverrides adds the runtime settings of a rule. Requires d.mu.
func (d *daemon) addOverrides(info *api.RuleInfo, r *rules.Rule, k *tracker.RuleCounters, h *tracker.Histograms) {
	info.Storm = d.stormInfo(r, h, time.Now())
	info.Shed = slices.Contains(d.cost.heldRules(), r.Name)
	for _, t := range d.settings.Thresholds() {
		if t.Rule == r.Name {
			info.Set++
		}
	}
	if p, ok := d.settings.Paused(r.Name); ok {
		info.Paused, info.PausedLeftNS = true, left(p.Until, time.Now())
	}
	if r.Ratchet {
		info.RatchetNS = &k.RecordNS
	}
}
