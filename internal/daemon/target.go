package daemon

import (
	"cmp"
	"io/fs"
	"slices"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/trigger"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// triggerTarget finds the thread to be explained: the one that the source names, if it is
// a target of the rule, or else one of the rule's, and the activity that it was chosen by.
func (d *daemon) triggerTarget(spec *rules.Target, named *trigger.Task) (th *process.Thread, of *watch.Record, found bool) {
	switch {
	case named != nil:
		th, found = d.namedTarget(spec, named)
	case spec.PID != 0:
		here, err := d.hosts.Thread(int(spec.PID), int(spec.PID))
		th, found = &here, err == nil
	case len(spec.Activity) > 0:
		th, of = d.activityTarget(spec)
		found = th != nil
	case !spec.Places.Empty():
		th, found = d.placedTarget(&spec.Places)
	}
	return th, of, found
}

// namedTarget is what is known of a task that may be gone; false: it is no target.
func (d *daemon) namedTarget(spec *rules.Target, named *trigger.Task) (*process.Thread, bool) {
	th, err := process.Thread{}, fs.ErrNotExist
	if !named.Past {
		th, err = d.hosts.Thread(named.PID, named.TID)
	}
	if err != nil {
		th = process.Thread{Syscall: -1}
		th.PID, th.TID, th.Comm, th.Cgroup = cmp.Or(named.PID, named.TID), named.TID, named.Comm, named.Cgroup
		th.Cmdline = named.Cmdline
	}
	switch {
	case spec.PID != 0:
		return &th, th.PID == int(spec.PID)
	case spec.Places.Empty():
		return &th, true
	}
	at := d.cgroups().PlaceOf(cmp.Or(th.Cgroup, named.Cgroup))
	return &th, spec.Places.All(&at.Place)
}

// maxCandidates is how many threads are asked for their state.
const maxCandidates = 128

// placedTarget chooses one of the threads that run where the conditions hold: one that is
// blocked without a signal's way out, or else one that runs or waits for a CPU, or else
// the first.
func (d *daemon) placedTarget(where *rules.Places) (*process.Thread, bool) {
	var best *process.Thread
	asked := 0
	from := d.cgroups()
	err := from.WalkCgroups(func(_ uint64, path string) {
		if asked >= maxCandidates || best != nil && stalled(best) == 2 {
			return
		}
		at := from.PlaceOf(path)
		if !where.All(&at.Place) {
			return
		}
		tids, err := d.hosts.CgroupThreads(path)
		if err != nil {
			return // it was removed
		}
		for _, tid := range tids[:min(len(tids), maxCandidates-asked)] {
			asked++
			th, err := d.hosts.Thread(0, tid)
			if err != nil {
				continue
			}
			if best == nil || stalled(&th) > stalled(best) {
				best = &th
			}
		}
	})
	if err != nil {
		d.log.Debug("find the target of a trigger", zap.Error(err))
	}
	return best, best != nil
}

// stalled orders threads by how likely they are the ones that were held up.
func stalled(th *process.Thread) int {
	switch th.State {
	case "uninterruptible":
		return 2
	case "runnable":
		return 1
	}
	return 0
}

// activityTarget chooses one of the threads that work for live activities of these names, where
// the conditions hold: like placedTarget, of the activity that began first before the others.
func (d *daemon) activityTarget(spec *rules.Target) (best *process.Thread, of *watch.Record) {
	if d.requests == nil {
		return nil, nil
	}
	named := func(name string) bool {
		return slices.ContainsFunc(spec.Activity, func(glob string) bool { return rules.GlobMatch(glob, name) })
	}
	asked := 0
	for _, r := range append(d.requests.LiveNamed(named), d.declaredNamed(named)...) {
		for _, task := range d.activityTasks(r) {
			if task.TID == 0 {
				continue
			}
			if asked++; asked > maxCandidates {
				return best, of
			}
			th, err := d.hosts.Thread(r.PID, task.TID)
			if err != nil {
				continue
			}
			at := d.cgroups().PlaceOf(th.Cgroup)
			if spec.Places.All(&at.Place) && (best == nil || stalled(&th) > stalled(best)) {
				best, of = &th, r
			}
		}
	}
	return best, of
}

// declaredNamed are live activities that rules declare, and whose name is wanted.
func (d *daemon) declaredNamed(wanted func(name string) bool) (list []*watch.Record) {
	d.mu.Lock()
	entry := d.declaredEntry
	d.mu.Unlock()
	if entry == nil {
		return nil
	}
	for _, c := range d.requests.CarriedOf(opened{entry, d.requests}) {
		if wanted(c.Name) {
			list = append(list, c.Record)
		}
	}
	return list
}

// worksFor adds the activity that a target was chosen by, if it was.
func worksFor(o *events.Outlier, of *watch.Record) {
	if of == nil {
		return
	}
	o.Activity = activityInfo(of)
	if o.TraceID == "" {
		o.TraceID, o.SpanID = of.TraceID, of.SpanID
	}
}
