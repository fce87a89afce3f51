package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/trigger"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// openTriggers prepares the rules of track trigger. Their sources are opened later: one
// that cannot be opened is tried again.
func (d *daemon) openTriggers() error {
	d.triggers = trigger.New(&trigger.Options{
		Fire: d.fire, CgroupDir: d.hosts.CgroupDir, CgroupPath: d.hosts.CgroupPath, Delays: delays{d}, Rate: d.cfg.Outliers.Rate, Burst: d.cfg.Outliers.Burst,
		Guard: d.guard, Log: d.log.Named("triggers"),
	})
	d.triggers.Set(d.rules)
	return nil
}

// fire makes outliers of what the source of a trigger has noticed: one, or one of each task.
func (d *daemon) fire(f *trigger.Firing) {
	var list []*events.Outlier
	for _, ev := range append([]*trigger.Event{f.Event}, f.With...) {
		if o := d.triggerOutlier(f, ev); o != nil {
			list = append(list, o)
		}
	}
	for i, o := range list {
		if i == 0 {
			o.Suppressed = f.Suppressed
		}
		if len(list) > 1 { // all are to be in one snapshot
			o.KeepUntil = linux.Monotonic() + uint64(joinTime)
		}
		d.outliers.accept(o)
	}
}

// joinTime is for how long the first outlier's snapshot waits for those of other tasks.
const joinTime = 20 * time.Millisecond

// triggerOutlier makes an outlier; nil: the task is none of the rule's.
func (d *daemon) triggerOutlier(f *trigger.Firing, ev *trigger.Event) *events.Outlier {
	spec := &f.Rule.Trigger.Target
	if ev.Target != nil && !spec.Named() {
		of := *ev.Target
		of.Last = spec.Last
		spec = &of
	}
	th, found := d.triggerTarget(spec, ev.Task)
	if !found && ev.Task != nil && spec.Named() {
		return nil // of another's
	}
	o := &events.Outlier{}
	if found {
		o = target(th)
	}
	if ev.Task != nil {
		o.Task.UID = ev.Task.UID
	}
	now := linux.Monotonic()
	end := min(cmp.Or(ev.End, now), now)
	last := min(uint64(cmp.Or(spec.Last, ev.Time, defaultLast)), end)
	o.Time = time.Now().Add(-time.Duration(now - end)).UTC()
	o.Rule, o.Track, o.Cause = f.Rule.Name, events.TrackTrigger, events.CauseTrigger
	o.StartMono, o.EndMono, o.DelayNS = end-last, end, int64(last)
	o.ThresholdNS = int64(ev.Limit)
	o.Key = map[string]uint64{"tid": uint64(o.Task.TID)}
	o.Trigger = &events.TriggerInfo{Source: f.Rule.Trigger.Source(), Reason: ev.Reason, Peer: ev.Peer}
	o.TraceID, o.SpanID, o.Activity = ev.TraceID, ev.SpanID, ev.Activity
	o.WantsSnapshot, o.MatchedRule = f.WantsSnapshot, f.Rule
	return o
}

// triggerTarget finds the thread to be explained: the one that the source names, if it is
// a target of the rule, or else one of the rule's.
func (d *daemon) triggerTarget(spec *rules.Target, named *trigger.Task) (*process.Thread, bool) {
	switch {
	case named != nil:
		return d.namedTarget(spec, named)
	case spec.PID != 0:
		th, err := d.hosts.Thread(int(spec.PID), int(spec.PID))
		return &th, err == nil
	case !spec.Places.Empty():
		return d.placedTarget(&spec.Places)
	}
	return nil, false
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

// counters are those of the kernel side, of triggers and of rules on activities.
func (d *daemon) counters() (*tracker.Counters, error) {
	c, err := d.kernel.Counters()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.rules {
		d.requestCounters(c, d.rules[i].Name)
		if s, ok := d.triggers.State(d.rules[i].Name); ok {
			c.Rules[d.rules[i].Name] = tracker.RuleCounters{
				Seen: s.Seen, Outliers: s.Outliers, WorstNS: s.WorstNS, Suppressed: s.Suppressed, Limited: s.Limited,
			}
		}
	}
	return c, nil
}

// triggerError is why the source of a trigger is not watched now.
func (d *daemon) triggerError(r *rules.Rule) error {
	s, _ := d.triggers.State(r.Name)
	return s.Err
}

func (d *daemon) triggerLost(r *rules.Rule) uint64 {
	s, _ := d.triggers.State(r.Name)
	return s.Lost
}

// checkTriggers opens the sources of triggers and closes them again.
func checkTriggers(list []rules.Rule, hosts *process.Table) (err error) {
	e := trigger.New(&trigger.Options{CgroupDir: hosts.CgroupDir})
	for _, r := range rules.Triggers(list) {
		if failed := e.Try(&r); failed != nil {
			err = errors.Join(err, fmt.Errorf("rule %s: %w", r.Name, failed))
		}
	}
	return err
}

// delays implements trigger.Delays.
type delays struct{ *daemon }

// Histogram implements trigger.Delays. A rule comes before a tracker of that name.
func (d delays) Histogram(of string) (histogram.Histogram, error) {
	if h, ok := d.requestHistogram(of); ok {
		return h, nil
	}
	h, err := d.kernel.Histograms()
	if err != nil {
		return histogram.Histogram{}, err
	}
	if r := h.Rules[of]; r != nil {
		return r.All(), nil
	}
	if t, ok := h.Trackers[rules.Track(of)]; ok && d.rule(of) == nil {
		return t, nil
	}
	return histogram.Histogram{}, errors.New("there is none: it is inactive, or histograms are disabled")
}

// Worst implements trigger.Delays.
func (d delays) Worst(of string, since uint64) (worst *events.Outlier) {
	list := d.feed.Recent(of)
	if d.rule(of) == nil {
		list = slices.DeleteFunc(d.feed.Recent(""), func(o *events.Outlier) bool { return o.Track != of })
	}
	for _, o := range list {
		if o.EndMono >= since && (worst == nil || o.DelayNS > worst.DelayNS) {
			worst = o
		}
	}
	return worst
}
