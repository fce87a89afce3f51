package daemon

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
)

// liveKey is a key of the configuration, or a part of it, that changes without a restart.
type liveKey struct {
	name  string
	take  func(into, from *config.Config)
	apply func(d *daemon, c *config.Config) error // nil: whoever reads it next
}

var liveKeys = []liveKey{
	{"rules", func(into, from *config.Config) { into.Rules = from.Rules }, nil},
	{
		"snapshots.keep", func(into, from *config.Config) { into.Snapshots.Keep = from.Snapshots.Keep },
		func(d *daemon, c *config.Config) error {
			d.store.SetRetention(retention(c.Snapshots.Keep))
			return nil
		},
	},
	{
		"snapshots.min_free", func(into, from *config.Config) { into.Snapshots.MinFree = from.Snapshots.MinFree },
		func(d *daemon, c *config.Config) error {
			d.store.SetMinFree(uint64(c.Snapshots.MinFree))
			return nil
		},
	},
	{
		"budget.cpu", func(into, from *config.Config) { into.Budget.CPU = from.Budget.CPU },
		func(d *daemon, c *config.Config) error {
			d.cost.mu.Lock()
			defer d.cost.mu.Unlock()
			d.cost.controller.CPU = c.Budget.CPU
			return nil
		},
	},
	{
		"log.level", func(into, from *config.Config) { into.Log.Level = from.Log.Level },
		func(d *daemon, c *config.Config) error { return d.logs.SetLevel(c.Log.Level) },
	},
	{
		"metrics", func(into, from *config.Config) { into.Metrics = from.Metrics },
		func(d *daemon, c *config.Config) error { return d.serveMetrics(&c.Metrics) },
	},
	{
		"otlp", func(into, from *config.Config) { into.OTLP = from.OTLP },
		func(d *daemon, c *config.Config) error { return d.sendOTLP(&c.OTLP) },
	},
}

// judgeKeys lists the keys that differ, and returns the configuration with those that
// can change.
func (d *daemon) judgeKeys(read *config.Config, out *api.Reload) config.Config {
	next := d.running
	for i := range liveKeys {
		liveKeys[i].take(&next, read)
	}
	for _, c := range config.Changes(&d.running, read) {
		key := api.ReloadKey{Key: c.Key, Outcome: api.ReloadChanged, Before: c.Before, After: c.After}
		if !slices.ContainsFunc(liveKeys, func(k liveKey) bool { return config.Within(c.Key, k.name) }) {
			key.Outcome, key.Reason = api.ReloadRefused, "restart tailcam to change this key"
		}
		out.Keys = append(out.Keys, key)
	}
	return next
}

// applyKeys applies the keys that differ. One that fails is as before, in next too.
func (d *daemon) applyKeys(next *config.Config, out *api.Reload) {
	for i := range liveKeys {
		k := &liveKeys[i]
		changed := func(key api.ReloadKey) bool { return config.Within(key.Key, k.name) }
		if k.apply == nil || !slices.ContainsFunc(out.Keys, changed) {
			continue
		}
		err := k.apply(d, next)
		if err == nil {
			continue
		}
		k.take(next, &d.running)
		if back := k.apply(d, next); back != nil {
			err = errors.Join(err, fmt.Errorf("and what was before does not work any more: %w", back))
		}
		for j := range out.Keys {
			if key := &out.Keys[j]; changed(*key) {
				key.Outcome, key.Reason = api.ReloadRefused, err.Error()
			}
		}
	}
}
