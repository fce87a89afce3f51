package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/config"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker/events"
)

// act starts the actions for some outliers.
func (d *daemon) act(on string, outliers []events.Outlier, job *action.Job) {
	d.mu.Lock()
	shared := d.shared
	d.mu.Unlock()
	job.Items, job.Unmatched = action.Select(on, outliers, d.rule, shared)
	d.actions.Submit(*job)
}

// judgeShared returns the actions of no rule: those that were read, or if one of them
// cannot start now, those of before.
func (d *daemon) judgeShared(read []rules.SharedAction, next *config.Config, out *api.Reload) []rules.SharedAction {
	shared, err := prepareShared(read, next)
	if err != nil {
		out.Errors = append(out.Errors, err.Error())
		return d.shared
	}
	out.Actions = !reflect.DeepEqual(shared, d.shared)
	return shared
}

// prepareShared fills in what the configuration says of actions of no rule.
func prepareShared(list []rules.SharedAction, cfg *config.Config) ([]rules.SharedAction, error) {
	list = slices.Clone(list)
	for i := range list {
		a := &list[i]
		if err := prepareAction(&a.Action, cfg); err != nil {
			return nil, fmt.Errorf("%s: %w", a.Pos, err)
		}
	}
	return list, nil
}

func prepareAction(a *rules.Action, cfg *config.Config) error {
	a.User = cmp.Or(a.User, cfg.Actions.User)
	return action.Check(*a)
}

// actionOptions are those that follow a reload.
func actionOptions(c *config.Actions) *action.Options {
	return &action.Options{
		User: c.User, Concurrency: c.Concurrency, Queue: c.Queue,
		MaxCPU: c.MaxCPU, MaxMemory: c.MaxMemory, MaxOutput: c.MaxOutput,
	}
}

// actionsStatus tells what became of actions.
func (d *daemon) actionsStatus(s *action.Stats) *api.ActionsStatus {
	out := &api.ActionsStatus{Running: s.Running, Waiting: s.Waiting, Rules: []api.ActionCounts{}, Last: []events.ActionResult{}}
	names := map[string]bool{}
	for _, m := range []map[string]uint64{s.Ran, s.Failed, s.Skipped, s.Limited, s.Unmatched, s.NotRun} {
		for name := range m {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out.Rules = append(out.Rules, api.ActionCounts{
			Rule: name, Succeeded: s.Succeeded[name], Failed: s.Failed[name] - s.TimedOut[name] - s.OverLimit[name],
			TimedOut: s.TimedOut[name], OverLimit: s.OverLimit[name], Skipped: s.Skipped[name],
			Limited: s.Limited[name], Unmatched: s.Unmatched[name], NotRun: s.NotRun[name],
		})
	}
	for _, r := range d.actions.Last() {
		out.Last = append(out.Last, r.Short())
	}
	return out
}
