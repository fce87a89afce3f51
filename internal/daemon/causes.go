package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

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
	th, of, found := d.triggerTarget(spec, ev.Task)
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
	worksFor(o, of)
	o.WantsSnapshot, o.MatchedRule = f.WantsSnapshot, f.Rule
	return o
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
