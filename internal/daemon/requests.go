package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/tailcam/tailcam/internal/activities/breakdown"
	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// openRequests prepares following the tokens of activities, and the rules on them.
func (d *daemon) openRequests() error {
	if d.activities == nil {
		return nil
	}
	d.requests = watch.New(&watch.Options{
		Processes: d.openedProcesses, Identify: d.identifyOpened, Fire: d.fireActivity,
		Rate: d.cfg.Outliers.Rate, Burst: d.cfg.Outliers.Burst, Guard: d.guard, Log: d.log.Named("activities"),
	})
	d.requests.Set(d.rules)
	return nil
}

// followRequests runs until ctx is done.
func (d *daemon) followRequests(ctx context.Context) error {
	if d.requests == nil {
		return nil
	}
	return d.requests.Run(ctx)
}

// identifyOpened is who a process is. It may take as long as its cgroup's path takes.
func (d *daemon) identifyOpened(pid int) watch.Identity {
	th, err := d.hosts.Thread(pid, pid)
	if err != nil {
		return watch.Identity{}
	}
	at := d.cgroups().PlaceOf(th.Cgroup)
	return watch.Identity{Comm: th.Comm, Place: at.Place}
}

// fireActivity makes an outlier of an activity that passed a limit of a rule.
func (d *daemon) fireActivity(f *watch.Firing) {
	now := linux.Monotonic()
	o := &events.Outlier{
		Time: time.Now().Add(-time.Duration(now - min(f.End, now))).UTC(),
		Rule: f.Rule.Name, Track: string(rules.Activity), Cause: f.Cause, AfterTimeout: f.Cause == events.CauseAfterTimeout,
		DelayNS: int64(f.Elapsed()), ThresholdNS: f.Limit.Nanoseconds(),
		StartMono: f.Begin, EndMono: f.End,
		Task:    events.Task{PID: f.PID, UID: int(f.UID), Comm: f.Comm, Cgroup: f.Cgroup},
		TraceID: f.TraceID, SpanID: f.SpanID, Attributes: d.attributes.Wanted(f.Attributes), Activity: activityInfo(f.Record),
		WantsSnapshot: f.WantsSnapshot, Suppressed: f.Suppressed, MatchedRule: f.Rule,
	}
	if n := len(f.Threads); n > 0 {
		o.Task.TID = d.hosts.HostThread(f.PID, f.Threads[n-1])
	}
	if o.Task.TID != 0 && o.Task.TID != f.PID {
		if comm := d.hosts.ThreadName(o.Task.TID); comm != "" {
			o.Task.Comm = comm
		}
	}
	o.Key = map[string]uint64{"tid": uint64(o.Task.TID)}
	d.outliers.accept(o)
}

// learnActivity finds the activity that the slow thread carried for all of the slow time, if
// that is certain: its process has open maps, and has switched at most once since.
func (d *daemon) learnActivity(o *events.Outlier) {
	if d.requests == nil || o.Activity != nil || o.Task.Kernel || o.Task.PID == 0 || o.Task.TID == 0 {
		return
	}
	from, to := o.StartMono, o.EndMono
	switch rules.Track(o.Track) {
	case rules.IRQ, rules.Softirq, rules.Workqueue: // who was interrupted, or a worker
		return
	case rules.Block: // who issued it, then
		to = from
	}
	if !d.requests.Follows(o.Task.PID) {
		return
	}
	r := d.requests.Carried(o.Task.PID, d.hosts.ThreadInside(o.Task.PID, o.Task.TID), from, to)
	if r == nil {
		return
	}
	wanted := d.attributes.Wanted(r.Attributes)
	o.Enrichment.Learn(func(o *events.Outlier) {
		o.Activity = &events.ActivityInfo{Token: r.ID, Name: r.Name, Text: r.Text, Value: r.Value}
		o.Attributes = wanted
		if o.TraceID == "" {
			o.TraceID, o.SpanID = r.TraceID, r.SpanID
		}
	})
}

// learnRequestAttributes adds what the slow thread has published beside its context to the
// activity that it worked for.
func (d *daemon) learnRequestAttributes(o *events.Outlier) {
	if d.requests != nil && o.Activity != nil && len(o.Attributes) > 0 {
		d.requests.Learn(o.Activity.Token, o.Attributes)
	}
}

// activityInfo is an activity as outliers have it.
func activityInfo(r *watch.Record) *events.ActivityInfo {
	values := r.Values.ByName()
	return &events.ActivityInfo{
		Token: r.ID, Name: r.Name, Text: r.Text, Value: r.Value, Threads: r.Threads, Values: values,
		Account: breakdown.Words(r.Name, r.Elapsed(), r.Live, values),
	}
}

// Activities implements api.Backend.
func (d *daemon) Activities(ended bool) (*api.ActivitiesInfo, error) {
	if d.requests == nil {
		return nil, d.whyNoActivities()
	}
	r := d.requests.Report(ended)
	info := &api.ActivitiesInfo{
		Processes: r.Processes, LiveCount: r.LiveCount, Count: r.Counts.Ended, Missed: r.Missed,
		IntervalNS: r.Every.Nanoseconds(), Maps: d.activities.MapIDs(),
	}
	wall, now := time.Now(), linux.Monotonic()
	begun := func(mono uint64) time.Time { return wall.Add(-time.Duration(now - min(mono, now))).UTC() }
	for _, a := range r.Live {
		info.Live = append(info.Live, newActivity(a, begun(a.Begin)))
	}
	for _, a := range r.Ended {
		info.Ended = append(info.Ended, newActivity(a, begun(a.Begin)))
	}
	for i := range r.Totals {
		info.Names = append(info.Names, newActivityTotals(&r.Totals[i]))
	}
	for i := range r.Shared {
		info.Shared = append(info.Shared, newShared(&r.Shared[i]))
	}
	return info, d.addDeclared(info, ended)
}

func newShared(s *watch.Shared) api.SharedInfo {
	return api.SharedInfo{
		PID: s.PID, UID: int(s.UID), Comm: s.Comm, Unit: s.Unit, Container: cmp.Or(s.ContainerName, s.Container), Pod: s.Pod,
		MachineNS: s.MachineNS, Late: s.Late, Values: s.Values.ByName(),
	}
}

func newActivity(r *watch.Record, begun time.Time) api.ActivityInfo {
	return api.ActivityInfo{
		ID: r.ID, Name: r.Name, Text: r.Text, Value: r.Value, Live: r.Live, Begun: begun, ElapsedNS: int64(r.Elapsed()),
		PID: r.PID, UID: int(r.UID), Comm: r.Comm, Cgroup: r.Cgroup, Unit: r.Unit, Container: cmp.Or(r.ContainerName, r.Container),
		Pod: r.Pod, Namespace: r.Namespace, TraceID: r.TraceID, SpanID: r.SpanID, Attributes: r.Attributes, Threads: r.Threads,
		Values: r.Values.ByName(),
	}
}

func newActivityTotals(t *watch.Totals) api.ActivityTotals {
	h := api.NewHistogram(&t.Histogram, api.HistogramInfo{})
	return api.ActivityTotals{
		Name: t.Name, UID: int(int32(t.UID)), Count: h.Count, P50NS: h.P50NS, P90NS: h.P90NS, P99NS: h.P99NS, P999NS: h.P999NS,
		MaxNS: h.MaxNS, SumNS: h.SumNS, Values: t.Values.ByName(), Buckets: h.Buckets,
	}
}

// requestHistograms are the distributions of elapsed times: of all activities, of each name,
// and of rules that have one.
func (d *daemon) requestHistograms(list []rules.Rule) (out []api.HistogramInfo) {
	if d.requests == nil {
		return nil
	}
	track := string(rules.Activity)
	byName := map[string]*histogram.Histogram{}
	var names []string
	var all histogram.Histogram
	for _, t := range d.requests.Totals() {
		if byName[t.Name] == nil {
			byName[t.Name] = &histogram.Histogram{}
			names = append(names, t.Name)
		}
		byName[t.Name].Merge(&t.Histogram)
		all.Merge(&t.Histogram)
	}
	out = append(out, api.NewHistogram(&all, api.HistogramInfo{Tracker: track}))
	for _, name := range names {
		out = append(out, api.NewHistogram(byName[name], api.HistogramInfo{Tracker: track, By: api.ByName, Class: name}))
	}
	for i := range list {
		out = append(out, d.requestClasses(&list[i])...)
	}
	return out
}

// requestClasses are the histogram of a rule on activities, if it has one, and its classes.
func (d *daemon) requestClasses(r *rules.Rule) []api.HistogramInfo {
	h, ok := d.requests.Histogram(r.Name)
	if !ok || r.Histogram == nil {
		return nil
	}
	about := api.HistogramInfo{Tracker: string(rules.Activity), Rule: r.Name}
	out := []api.HistogramInfo{api.NewHistogram(&h, about)}
	if r.Histogram.By != rules.ByOverride {
		return out
	}
	about.By = string(rules.ByOverride)
	for i, h := range d.requests.Classes(r.Name) {
		about.Class = "other"
		if i > 0 && i <= len(r.Overrides) {
			about.Class = tracker.OverrideClass(&r.Overrides[i-1].When)
		}
		out = append(out, api.NewHistogram(&h, about))
	}
	return out
}

// requestHistogram is what a promise is about, if that is activities.
func (d *daemon) requestHistogram(of string) (h histogram.Histogram, ok bool) {
	if d.requests == nil {
		return h, false
	}
	if h, ok = d.requests.Histogram(of); ok || of != string(rules.Activity) || d.rule(of) != nil {
		return h, ok
	}
	for _, t := range d.requests.Totals() {
		h.Merge(&t.Histogram)
	}
	return h, true
}

// requestCounters adds what rules on activities have counted.
func (d *daemon) requestCounters(c *tracker.Counters, rule string) {
	if d.requests == nil {
		return
	}
	if s, ok := d.requests.State(rule); ok {
		c.Rules[rule] = tracker.RuleCounters{
			Seen: s.Seen, Outliers: s.Outliers, WorstNS: s.WorstNS, Suppressed: s.Suppressed, Limited: s.Limited,
		}
	}
}

// requestLosses is what following activities has missed.
func (d *daemon) requestLosses() []api.Loss {
	if d.requests == nil {
		return nil
	}
	c, every := d.requests.Counts()
	track := string(rules.Activity)
	opened := d.activities.Counts()
	return []api.Loss{
		{Cause: "activity_refused", Tracker: track, Count: opened.Refused,
			Advice: "processes that could not open: raise activities.memory or activities.user_memory, or let them open with fewer tokens"},
		{Cause: "activity_late", Tracker: track, Count: opened.Late,
			Advice: "work that was done for a token after its end, such as writes to disk: it is in no account"},
		{Cause: "activity_missed", Tracker: track, Count: c.Missed,
			Advice: "tokens that were freed and used again within " + every.String() + ": let programs open with more tokens"},
		{Cause: "activity_token_refused", Tracker: track, Count: c.TokensRefused,
			Advice: "all tokens of a process were live, so requests have no account: let it open with more tokens, or end those that are over"},
		{Cause: "activity_thread_refused", Tracker: track, Count: c.ThreadsRefused,
			Advice: "threads found no slot, so what they do is in no account: let their process open with more threads"},
		{Cause: "activity_message_limited", Tracker: track, Count: c.Limited,
			Advice: "a program reports slow activities faster than 200 per second, the rest is found by the next scan: raise the rule's threshold"},
	}
}

// addActivityDistribution is addDistribution for rules on activities.
func (d *daemon) addActivityDistribution(info *api.RuleInfo, r *rules.Rule) {
	if d.requests == nil {
		return
	}
	if s, ok := d.requests.Adaptive(r.Name, 0); ok && r.Adaptive != nil {
		info.Adaptive = newAdaptiveInfo(r.Adaptive, &s)
		info.ThresholdNS = info.Adaptive.ThresholdNS
	}
	for i := range r.Overrides {
		if s, ok := d.requests.Adaptive(r.Name, i+1); ok && r.Overrides[i].Adaptive != nil {
			info.Overrides = append(info.Overrides, api.OverrideInfo{Index: i + 1, Adaptive: *newAdaptiveInfo(r.Overrides[i].Adaptive, &s)})
		}
	}
	if h, ok := d.requests.Histogram(r.Name); ok && r.Histogram != nil {
		info.Samples, info.P999NS = h.Count, int64(h.Quantile(0.999))
	}
}

// activityError is why a rule on activities is inactive.
func (d *daemon) activityError(r *rules.Rule) error {
	if r.Track == rules.Activity && d.requests == nil {
		return d.whyNoActivities()
	}
	return nil
}
