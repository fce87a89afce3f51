package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker"
)

// reloadOnHangup reloads on SIGHUP.
func (d *daemon) reloadOnHangup(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.hangup:
		}
		d.Reload(false)
	}
}

// Reload implements api.Backend: it reads the configuration and the rule files again.
// What cannot be applied stays as it was, and does not hold up the rest.
func (d *daemon) Reload(check bool) *api.Reload {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	out := &api.Reload{Time: time.Now().UTC(), Check: check}
	d.reloadSince.Store(int64(time.Since(d.start)))
	defer d.reloadSince.Store(0)
	if !check {
		d.notifyReloading()
		defer d.notifyReady() // with the outcome
	}
	if err := d.guard.Do(guard.Reload, func() error { return d.reload(out) }); err != nil {
		out.Errors = append(out.Errors, err.Error())
		out.Changed = false
	}
	problems := reloadProblems(out)
	out.OK = len(problems) == 0
	if check {
		return out
	}
	d.logReload(out, problems)
	d.tally.Reload(errors.Join(problems...))
	d.mu.Lock()
	d.reloaded = out
	d.mu.Unlock()
	return out
}

// reload fills in out. If it fails, nothing was changed.
func (d *daemon) reload(out *api.Reload) error {
	next := d.running
	if d.cfg.Again != nil {
		read, err := d.cfg.Again()
		if err != nil {
			out.Errors = append(out.Errors, strings.Split(err.Error(), "\n")...)
		} else {
			next = d.judgeKeys(&read, out)
		}
	}
	set, err := d.ruleFiles.load(d.set, next.Rules)
	if err != nil {
		return err
	}
	out.Files = reloadFiles(set)
	for _, e := range set.Lost {
		out.Errors = append(out.Errors, e.Error())
	}
	d.change.Lock()
	defer d.change.Unlock()
	list := d.judgeRules(set.Rules, &next, out)
	shared := d.judgeShared(set.Actions, &next, out)
	settings, gone := d.settings.Reconcile(list, &rules.LocalMachine{})
	out.Dropped = gone
	if !out.Check {
		if err := d.apply(list, settings); err != nil {
			return err
		}
		d.set = set
		d.mu.Lock()
		d.shared = shared
		d.mu.Unlock()
		d.applyKeys(&next, out)
		d.running = next
		d.now.Store(&next)
		d.logInactive()
		d.logWithoutActivities(list)
	}
	out.Changed = len(out.Keys)+len(out.Rules) > refused(out) || out.Actions
	return nil
}

// judgeRules compares rules as read with those that run, and returns those to run: one
// that cannot start now is as it was before, or left out. Requires d.change.
func (d *daemon) judgeRules(read []rules.Rule, next *config.Config, out *api.Reload) []rules.Rule {
	var list []rules.Rule
	inactive := d.kernel.Inactive()
	for i := range read {
		r := &read[i]
		info := api.ReloadRule{Rule: r.Name, Outcome: api.ReloadAdded, Source: r.Pos.String()}
		old := findRule(d.file, r.Name)
		err := prepareRule(r, next)
		if old != nil {
			info.Outcome, info.Changes = api.ReloadChanged, ruleChanges(old, r)
			if len(info.Changes) == 0 {
				list = append(list, *r)
				continue
			}
		}
		if err == nil {
			err = d.kernel.Fits(r)
		}
		if old != nil && inactive[r.Name] != nil && errors.Is(err, tracker.ErrAbsent) {
			err = nil // it is as inactive as it was
		}
		if err == nil {
			list = append(list, *r)
		} else {
			info.Outcome, info.Reason = api.ReloadRefused, err.Error()
			if old != nil {
				list = append(list, *old)
			}
		}
		out.Rules = append(out.Rules, info)
	}
	for i := range d.file {
		if r := &d.file[i]; findRule(read, r.Name) == nil {
			out.Rules = append(out.Rules, api.ReloadRule{Rule: r.Name, Outcome: api.ReloadRemoved, Source: r.Pos.String()})
		}
	}
	return list
}

func findRule(list []rules.Rule, name string) *rules.Rule {
	i := slices.IndexFunc(list, func(r rules.Rule) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// prepareRule fills in what the configuration says of a rule. Without a recorder,
// snapshots are disabled.
func prepareRule(r *rules.Rule, cfg *config.Config) error {
	r.Actions = slices.Clone(r.Actions)
	for j := range r.Actions {
		if err := prepareAction(&r.Actions[j], cfg); err != nil {
			return err
		}
	}
	if !cfg.Recorder.Enabled {
		r.Snapshot.Enabled = false
	}
	if cfg.EachRule && r.Histogram == nil && rules.HasHistogram(r.Track) {
		r.Histogram = &rules.Histogram{}
	}
	return nil
}

// ruleChanges compares rules by the keys of snapshot.json.
func ruleChanges(before, after *rules.Rule) []api.ReloadChange {
	a, b := ruleKeys(before), ruleKeys(after)
	all := maps.Clone(a)
	maps.Copy(all, b)
	var list []api.ReloadChange
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch {
		case bytes.Equal(a[key], b[key]):
		case key == "actions": // their arguments may be secret to users of the socket
			list = append(list, api.ReloadChange{Key: key, Before: "…", After: "…"})
		default:
			list = append(list, api.ReloadChange{Key: key, Before: string(a[key]), After: string(b[key])})
		}
	}
	old := *before
	if old.Pos = after.Pos; len(list) == 0 && !reflect.DeepEqual(&old, after) {
		list = append(list, api.ReloadChange{Key: "rule"}) // what snapshot.json does not have
	}
	return list
}

// ruleKeys are the keys of a rule but its place in a file.
func ruleKeys(r *rules.Rule) map[string]json.RawMessage {
	keys := map[string]json.RawMessage{}
	data, err := json.Marshal(snapshot.NewRuleJSON(r))
	if err == nil {
		err = json.Unmarshal(data, &keys)
	}
	if err != nil {
		return nil // the comparison of the rules themselves remains
	}
	delete(keys, "source")
	return keys
}

func reloadFiles(set *rules.Set) []api.ReloadFile {
	list := make([]api.ReloadFile, 0, len(set.Files))
	for i := range set.Files {
		f := &set.Files[i]
		info := api.ReloadFile{File: f.Path, Outcome: api.ReloadRead, Rules: f.Rules, Replaces: f.Replaces}
		switch {
		case f.Kept:
			info.Outcome = api.ReloadKept
		case len(f.Errors) > 0:
			info.Outcome = api.ReloadLeftOut
		}
		for _, e := range f.Errors {
			info.Errors = append(info.Errors, e.Error())
		}
		list = append(list, info)
	}
	return list
}

// refused counts what could not change.
func refused(out *api.Reload) (n int) {
	for i := range out.Rules {
		if out.Rules[i].Outcome == api.ReloadRefused {
			n++
		}
	}
	for i := range out.Keys {
		if out.Keys[i].Outcome == api.ReloadRefused {
			n++
		}
	}
	return n
}

// reloadProblems lists what is not as the files say.
func reloadProblems(out *api.Reload) (list []error) {
	for _, e := range out.Errors {
		list = append(list, errors.New(e))
	}
	for i := range out.Files {
		for _, e := range out.Files[i].Errors {
			list = append(list, errors.New(e))
		}
	}
	for i := range out.Rules {
		if r := &out.Rules[i]; r.Outcome == api.ReloadRefused {
			list = append(list, fmt.Errorf("%s: rule %s: %s", r.Source, r.Rule, r.Reason))
		}
	}
	for i := range out.Keys {
		if k := &out.Keys[i]; k.Outcome == api.ReloadRefused {
			list = append(list, fmt.Errorf("%s: %s (%s, now %s)", k.Key, k.Reason, k.Before, k.After))
		}
	}
	return list
}

// logReload logs the outcome of a reload: of each file and rule, then of all.
func (d *daemon) logReload(out *api.Reload, problems []error) {
	for i := range out.Files {
		if f := &out.Files[i]; len(f.Errors) > 0 {
			d.log.Error("rule file not used", zap.String("file", f.File), zap.String("outcome", f.Outcome),
				zap.Strings("rules", f.Rules), zap.Strings("errors", f.Errors))
		}
	}
	for i := range out.Rules {
		r := &out.Rules[i]
		fields := []zap.Field{zap.String("rule", r.Rule), zap.String("source", r.Source)}
		if r.Outcome == api.ReloadRefused {
			d.log.Error("rule not changed", append(fields, zap.String("reason", r.Reason))...)
			continue
		}
		d.log.Info("rule "+r.Outcome, append(fields, zap.Any("changes", r.Changes))...)
	}
	for i := range out.Keys {
		k := &out.Keys[i]
		fields := []zap.Field{zap.String("key", k.Key), zap.String("before", k.Before), zap.String("after", k.After)}
		if k.Outcome == api.ReloadRefused {
			d.log.Error("key not changed", append(fields, zap.String("reason", k.Reason))...)
			continue
		}
		d.log.Info("key changed", fields...)
	}
	if len(out.Dropped) > 0 {
		d.log.Warn("runtime settings dropped by the reload", zap.Strings("settings", out.Dropped))
	}
	err := errors.Join(problems...)
	switch {
	case err == nil:
		d.mu.Lock()
		n := len(d.rules)
		d.mu.Unlock()
		d.log.Info("rules reloaded", zap.Int("rules", n))
	case out.Changed:
		d.log.Error("reloaded in part: see tailcam status", zap.Error(err))
	default:
		d.log.Error("reload failed: the running rules are unchanged", zap.Error(err))
	}
}
