package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

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
		MaxCPU: c.MaxCPU, MaxMemory: c.MaxMemory, MaxOutput: c.MaxOutput, TotalCPU: c.TotalCPU, TotalMemory: c.TotalMemory,
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

// delegateMarks are extended attributes by which systemd tells a service that it may make
// cgroups in its own (Delegate=): which one there is depends on its version.
var delegateMarks = []string{"user.delegate", "trusted.delegate"}

// actionsCgroup makes the cgroup in which actions have theirs, and returns the daemon's own, too;
// empty: nobody has delegated one.
func (d *daemon) actionsCgroup() (base, home string) {
	own, err := d.hosts.Identity(os.Getpid())
	if err != nil {
		return "", ""
	}
	home, err = d.hosts.CgroupDir(own.Cgroup)
	dir := home
	switch {
	case err != nil:
		return "", ""
	case isDelegated(dir):
		// The daemon is in it, so controllers cannot be enabled below it: see "No Internal
		// Process Constraint" in the kernel's admin-guide/cgroup-v2.
	case isDelegated(filepath.Dir(dir)): // DelegateSubgroup=
		dir = filepath.Dir(dir)
	default:
		return "", ""
	}
	base = filepath.Join(dir, "actions")
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all cgroups
		d.log.Warn("actions run without cgroups of their own", zap.Error(err))
		return "", ""
	}
	for _, at := range []string{dir, base} {
		for _, controller := range []string{"+memory", "+pids", "+cpu"} {
			// Those that are not delegated, or not in v2, do not matter: the supervisor has limits, too.
			_ = os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte(controller), 0)
		}
	}
	return base, home
}

// closeActions removes the cgroup of actions, which all have ended.
func (d *daemon) closeActions() error {
	if d.actionGroups == "" {
		return nil
	}
	return os.Remove(d.actionGroups)
}

func isDelegated(dir string) bool {
	value := make([]byte, 2)
	return slices.ContainsFunc(delegateMarks, func(mark string) bool {
		n, err := unix.Getxattr(dir, mark, value)
		return err == nil && n == 1 && value[0] == '1'
	})
}
