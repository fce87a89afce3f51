package daemon

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/snapshot/flight"
)

// liveKey is a key of the configuration, or several that change together, or a part of it,
// that changes without a restart.
type liveKey struct {
	names []string
	take  func(into, from *config.Config)
	apply func(d *daemon, c *config.Config) error // nil: whoever reads it next
	// unless tells why it stays until a restart with what runs; nil: it does not.
	unless func(running *config.Config) string
}

// covers reports whether a key is one of these.
func (k *liveKey) covers(key string) bool { return config.Within(key, k.names...) }

func one(name string, take func(into, from *config.Config), apply func(*daemon, *config.Config) error) liveKey {
	return liveKey{names: []string{name}, take: take, apply: apply}
}

var liveKeys = []liveKey{
	one("rules", func(into, from *config.Config) { into.Rules = from.Rules }, nil),
	one("actions", func(into, from *config.Config) { into.Actions = from.Actions }, // their user stands in the rules
		func(d *daemon, c *config.Config) error {
			d.actions.Set(actionOptions(&c.Actions))
			return nil
		}),
	one("snapshots.keep", func(into, from *config.Config) { into.Snapshots.Keep = from.Snapshots.Keep },
		func(d *daemon, c *config.Config) error {
			d.store.SetRetention(retention(c.Snapshots.Keep))
			return nil
		}),
	one("snapshots.min_free", func(into, from *config.Config) { into.Snapshots.MinFree = from.Snapshots.MinFree },
		(*daemon).setMinFree),
	one("budget", func(into, from *config.Config) { into.Budget = from.Budget }, (*daemon).setBudget),
	one("log.level", func(into, from *config.Config) { into.Log.Level = from.Log.Level },
		func(d *daemon, c *config.Config) error { return d.logs.SetLevel(c.Log.Level) }),
	one("metrics", func(into, from *config.Config) { into.Metrics = from.Metrics },
		func(d *daemon, c *config.Config) error { return d.serveMetrics(&c.Metrics) }),
	one("alerts", func(into, from *config.Config) { into.Alerts = from.Alerts },
		func(d *daemon, c *config.Config) error { return d.serveAlerts(&c.Alerts) }),
	one("peers", func(into, from *config.Config) { into.Peers = from.Peers }, (*daemon).usePeers),
	one("otlp", func(into, from *config.Config) { into.OTLP = from.OTLP },
		func(d *daemon, c *config.Config) error { return d.sendOTLP(&c.OTLP) }),
	one("containers", func(into, from *config.Config) { into.Containers = from.Containers }, (*daemon).reloadContainers),
	one("upload", func(into, from *config.Config) { into.Upload = from.Upload }, (*daemon).sendSnapshots),
	{
		names: []string{"outliers.rate", "outliers.burst"},
		take: func(into, from *config.Config) {
			into.Outliers.Rate, into.Outliers.Burst = from.Outliers.Rate, from.Outliers.Burst
		},
		apply: (*daemon).limitOutliers,
	},
	one("capacity.max", func(into, from *config.Config) { into.Capacity.Max = from.Capacity.Max }, (*daemon).limitTables),
	{
		names: []string{"recorder.events", "recorder.irq_floor"},
		take: func(into, from *config.Config) {
			into.Recorder.Events, into.Recorder.IRQFloor = from.Recorder.Events, from.Recorder.IRQFloor
		},
		apply: (*daemon).recordEvents,
	},
	{
		names: []string{"recorder.size", "recorder.cover", "recorder.max_memory"},
		take: func(into, from *config.Config) {
			a, b := &into.Recorder, &from.Recorder
			a.Size, a.Cover, a.MaxMemory = b.Size, b.Cover, b.MaxMemory
		},
		apply: (*daemon).resizeRecorder,
		unless: func(running *config.Config) string {
			if running.Recorder.Enabled && running.Recorder.Backend != flight.BackendMmap {
				return "restart tailcam to change this key: perf rings have one size from the start"
			}
			return ""
		},
	},
}

// restartKeys say why the other keys stay until a restart.
var restartKeys = []struct{ name, why string }{
	{"host", "snapshots and links have the name already"},
	{"outliers.buffer", "outliers are on their way in the buffer"},
	{"recorder.backend", "what reads and what writes the history are of one backend"},
	{"recorder.enabled", "the snapshots' writer runs, or does not, from the start"},
	{"capacity", "the pending tables hold pending work"},
	{"activities", "the kernel side reads contexts, or does not, from the start"},
	{"histograms", "rules, thresholds and metrics count on from what is there"},
	{"snapshots.compress", "the snapshots' writer has it from the start"},
	{"snapshots.boost", "the threads have their priority from the start"},
	{"snapshots.rt_priority", "the threads have their priority from the start"},
	{"snapshots.dir", "it holds the lock of this daemon"},
	{"socket", "clients and the next start find this daemon by its socket"},
	{"symbols", "the helpers are started with their limits"},
	{"reload", "files are watched, or not, from the start"},
	{"pin", "what the kernel side is kept in is opened at the start"},
	{"log.format", "the log is opened once"},
}

// restartReason is why a key stays as it is.
func restartReason(key string) string {
	for _, k := range restartKeys {
		if config.Within(key, k.name) {
			return "restart tailcam to change this key: " + k.why
		}
	}
	return "restart tailcam to change this key"
}

// judgeKeys lists the keys that differ, and returns the configuration with those that
// can change.
func (d *daemon) judgeKeys(read *config.Config, out *api.Reload) config.Config {
	next := d.running
	for i := range liveKeys {
		if k := &liveKeys[i]; k.unless == nil || k.unless(&d.running) == "" {
			k.take(&next, read)
		}
	}
	for _, c := range config.Changes(&d.running, read) {
		key := api.ReloadKey{Key: c.Key, Outcome: api.ReloadChanged, Before: c.Before, After: c.After}
		if why := d.staysUntilRestart(c.Key); why != "" {
			key.Outcome, key.Reason = api.ReloadRefused, why
		}
		out.Keys = append(out.Keys, key)
	}
	return next
}

// staysUntilRestart tells why a key cannot change; empty: it can.
func (d *daemon) staysUntilRestart(key string) string {
	i := slices.IndexFunc(liveKeys, func(k liveKey) bool { return k.covers(key) })
	switch {
	case i < 0:
		return restartReason(key)
	case liveKeys[i].unless != nil:
		return liveKeys[i].unless(&d.running)
	}
	return ""
}

// applyKeys applies the keys that differ. One that fails is as before, in next too.
func (d *daemon) applyKeys(next *config.Config, out *api.Reload) {
	for i := range liveKeys {
		k := &liveKeys[i]
		changed := func(key api.ReloadKey) bool { return k.covers(key.Key) }
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
