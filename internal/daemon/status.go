package daemon

import (
	"cmp"
	"context"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/version"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Status implements api.Backend.
func (d *daemon) Status(context.Context) api.Status {
	s := api.Status{
		Version: version.String(), PID: os.Getpid(), UptimeNS: time.Since(d.start).Nanoseconds(), Kernel: release(),
		Cursor: d.feed.Cursor(),
		Rules:  []api.RuleInfo{},
		Losses: []api.Loss{},
	}
	for _, p := range d.kernel.Programs() {
		s.Programs = append(s.Programs, api.ProgramInfo{Name: p[0], Hook: p[1]})
	}
	if d.recorder != nil {
		s.Recorder = api.RecorderStatus{Enabled: true, Backend: d.now.Load().Recorder.Backend, CPUs: d.recorder.Coverage(), CoverNS: d.now.Load().Recorder.Cover.Nanoseconds()}
		s.Recorder.Groups, s.Recorder.Missing = d.now.Load().Recorder.Events, map[string]string{}
		for hook, why := range d.kernel.Unrecorded() {
			s.Recorder.Missing[hook] = why.Error()
		}
		s.Recorder.SizeBytes = uint64(d.recorder.Size() * len(s.Recorder.CPUs))
	}
	s.Tables = d.tables()
	s.Snapshots = d.snapshots()
	c, err := d.counters()
	if err != nil {
		d.log.Warn("read counters", zap.Error(err))
		return s
	}
	acted := d.actions.Stats()
	s.Rules = d.ruleInfos(c, &acted)
	s.Losses = d.losses(c, &acted)
	s.Actions = d.actionsStatus(&acted)
	s.Panics = d.panics()
	s.Cost = d.costStatus()
	d.mu.Lock()
	s.Reload = d.reloaded
	d.mu.Unlock()
	s.OTLP = d.otlpStatus()
	s.Upload = d.uploadStatus()
	s.Activities = d.activitiesStatus()
	s.Peers = d.peersStatus()
	s.Pins = d.pinStatus()
	calls := d.kernel.CallFunctions()
	s.Calls32 = calls32(&calls)
	return s
}

// Rules implements api.Backend.
func (d *daemon) Rules() []api.RuleInfo {
	c, err := d.counters()
	if err != nil {
		d.log.Warn("read counters", zap.Error(err))
		return nil
	}
	acted := d.actions.Stats()
	return d.ruleInfos(c, &acted)
}

func (d *daemon) ruleInfos(c *tracker.Counters, acted *action.Stats) []api.RuleInfo {
	inactive, calls := d.kernel.Inactive(), d.kernel.CallFunctions()
	distributions := d.distributions()
	stuck, err := d.kernel.Stuck()
	if err != nil {
		d.log.Warn("count work past its timeout", zap.Error(err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]api.RuleInfo, 0, len(d.rules))
	for i := range d.rules {
		r := &d.rules[i]
		k := c.Rules[r.Name]
		info := api.RuleInfo{
			Name: r.Name, Track: string(r.Track), ThresholdNS: r.Threshold.Nanoseconds(), Source: r.Pos.String(),
			TimeoutNS: r.Timeout.Nanoseconds(),
			Seen:      k.Seen, Outliers: k.Outliers, WorstNS: k.WorstNS, Suppressed: k.Suppressed,
			Lost: k.RingFull + d.outliers.dropped.get(r.Name), ActionsSkipped: acted.Skipped[r.Name],
			HeldBack: k.HeldBack, Limited: k.Limited,
		}
		if n, ok := stuck[r.Name]; ok {
			info.Stuck = &n
		}
		d.addDistribution(&info, r, distributions)
		d.addOverrides(&info, r, &k, distributions)
		if why := cmp.Or(inactive[r.Name], d.triggerError(r), d.activityError(r), d.peerError(r)); why != nil {
			info.Inactive = why.Error()
		} else {
			info.Attaching = attaching(r, &calls)
		}
		list = append(list, info)
	}
	return list
}

// losses lists every place where something can be lost, also those where
// nothing was: a zero is an answer, too.
func (d *daemon) losses(c *tracker.Counters, acted *action.Stats) []api.Loss {
	var list []api.Loss
	add := func(cause, rule string, track rules.Track, n uint64, advice string) {
		list = append(list, api.Loss{Cause: cause, Rule: rule, Tracker: string(track), Count: n, Advice: advice})
	}
	for _, t := range d.kernel.Trackers() {
		kind := kinds.Of(t)
		add("entry_replaced", "", t, c.Trackers[t].Replaced, kind.Replaced)
		for _, l := range kind.Losses {
			add(l.Cause, "", t, c.Lost[l.Cause], l.Advice)
		}
	}
	var skipped map[string]uint64
	if d.manager != nil {
		skipped = d.manager.Stats().Skipped
	}
	pairs, err := d.kernel.Pairs()
	if err != nil {
		d.log.Warn("read the counters of pairs", zap.Error(err))
	}
	d.mu.Lock()
	for i := range d.rules {
		r := &d.rules[i]
		k := c.Rules[r.Name]
		// Of the others nobody knows which rule would have wanted what found no slot: any of its tracker.
		if r.Track == rules.Trigger {
			add("trigger_lost", r.Name, r.Track, d.triggerLost(r), "messages came faster than they were read. kmsg, oom: boot with a larger log_buf_len; coredump: processes die in masses")
		} else if r.Track == rules.Activity {
			// it has no table: see requestLosses
		} else if p, ok := pairs[r.Name]; ok && r.Track == rules.Pair {
			for _, l := range kinds.PairLosses {
				add(l.Cause, r.Name, r.Track, l.Count(&p), l.Advice)
			}
		} else {
			add("table_full", r.Name, r.Track, c.Trackers[r.Track].TableFull, kinds.Of(r.Track).Full)
		}
		add("ring_buffer_full", r.Name, r.Track, k.RingFull, "the rule's share of the ring buffer was full: raise outliers.buffer or the rule's threshold")
		add("outlier_limited", r.Name, r.Track, k.Limited, "the rule exceeds outliers.rate and outliers.burst: raise its threshold")
		if where, _ := r.When.Places(); !where.Empty() {
			add("cgroup_gone", r.Name, r.Track, k.CgroupGone, "the cgroup was removed before its path could be read, or its container runtime "+
				"did not answer in time: a rule without conditions on cgroups and containers reports outliers of containers that live for milliseconds")
		}
		list = append(list, d.outliers.losses(r.Name, r.Track)...)
		add("outlier_unlogged", r.Name, r.Track, d.lines.unlogged.get(r.Name), "the log takes one outlier per second and rule: "+
			"see tailcam events, or raise the rule's threshold")
		if r.IsAdaptive() {
			add("adaptive_held_back", r.Name, r.Track, k.HeldBack, "more than 32 per second: treated as a shift in load; if frequent, raise times or floor")
		}
		add("snapshot_limited", r.Name, r.Track, k.Suppressed, "lower the rule's snapshot.every or raise snapshot.burst")
		add("snapshot_skipped", r.Name, r.Track, skipped[r.Name], "too many snapshots at once: raise snapshot.every or use a faster disk")
		add("action_hung", r.Name, r.Track, acted.Hung[r.Name], "the action is blocked on a file system or device that does not answer: fix it, or do not use it in the action")
		add("action_skipped", r.Name, r.Track, acted.Skipped[r.Name], "raise actions.queue or actions.concurrency")
	}
	names := make([]string, len(d.rules))
	for i := range d.rules {
		names[i] = d.rules[i].Name
	}
	d.mu.Unlock()
	list = append(list, d.otlpLosses(names)...)
	list = append(list, d.uploadLosses(names)...)
	list = append(list, d.peerLosses()...)
	list = append(list, d.declaredLosses()...)
	var refused uint64
	for _, cpu := range c.CPUs {
		refused += cpu.RecordLost
	}
	add("record_refused", "", "", refused, "a CPU came online after start and has no ring: restart tailcam; or, with backend perf, its ring was busy")
	if s, err := d.kernel.Tick(); err == nil {
		add("timeout_late", "", "", s.Late, "timeouts reported more than 20 ms late: too many at once, or the CPUs' timers were delayed")
	}
	add("program_missed", "", "", c.Missed.Sum(), "the kernel skipped a BPF program that would have interrupted itself, or that another task was preempted in")
	add("message_lost", "", "", c.Messages, "user stacks, progress stacks or requests did not fit the ring buffer: raise outliers.buffer")
	add("switch_unseen", "", "", c.Unseen, "this kernel skipped tracepoints of context switches or wake-ups; their outliers were missed")
	add("run_stack_broken", "", "", c.RunBroken, "stacks of tasks that ran for long have their innermost frame alone, or are missing: this kernel unwinds otherwise")
	list = append(list, d.histogramLosses(c)...)
	list = append(list, d.requestLosses()...)
	add("sample_unusable", "", "", d.outliers.unusable.Load(), "the daemon could not decode samples of the kernel side: see the log, and please report this")
	add("outlier_stale", "", "", c.Stale, "thresholds were set 256 times before the outliers were read: set them less often")
	s := d.symbols.Stats()
	add("symbols_late", "", "", s.Timeouts, "stacks published before all names or lines were read, within 1s; later ones have them; symbols.lines: false reads less")
	d.helperLosses(add)
	add("lines_refused", "", "", s.LinesRefused, "debug information exceeds the limits, so frames of the program have no lines: "+
		"raise symbols.max_memory if you trust the program")
	add("stream_lagged", "", "", d.feed.Lost(), "a tailcam events client was too slow")
	add("completion_lagged", "", "", d.feed.Missed(), "a tailcam events client was too slow for the completion of partial outliers: see tailcam events")
	add("log_lost", "", "", d.logs.Lost()+d.lines.missed.Load(), "the journal, or who reads the daemon's output, is down or too slow")
	if d.manager != nil {
		list = append(list, d.storeLosses()...)
	}
	return list
}

// tables tells how full the pending tables are.
func (d *daemon) tables() []api.TableStatus {
	tables, err := d.kernel.Tables()
	if err != nil {
		d.log.Warn("read the pending tables", zap.Error(err))
	}
	list := make([]api.TableStatus, 0, len(tables))
	for _, t := range tables {
		s := api.TableStatus{Name: t.Name, Slots: t.Slots, Max: t.Max, Used: t.Used, Grown: t.Grown}
		if t.Err != nil {
			s.Error = t.Err.Error()
		}
		list = append(list, s)
	}
	return list
}

func (d *daemon) snapshots() api.SnapshotsStatus {
	s := api.SnapshotsStatus{Dir: d.store.Dir()}
	usage, err := d.store.Usage() // as it was the last time, if the disk does not answer
	if err != nil {
		d.log.Debug("list snapshots", zap.Error(err))
	}
	s.Count, s.Bytes, s.DirID, s.Pinned = usage.Count, usage.Bytes, usage.DirID, usage.Pinned
	s.Removed = d.store.Removals()
	k := d.store.Retention()
	s.Keep = &api.KeepInfo{Count: k.Count, Bytes: k.Bytes, AgeNS: k.Age.Nanoseconds(), Worst: k.Worst}
	if usage.Last != "" {
		s.Last = &usage.Last
	}
	if d.manager != nil {
		s.Failed = d.manager.Stats().Failed
	}
	s.Boost = d.boostStatus()
	return s
}

// boostStatus tells of raised priorities; nil: that is off.
func (d *daemon) boostStatus() *api.BoostStatus {
	if d.boost == nil {
		if d.boostError == nil {
			return nil
		}
		return &api.BoostStatus{Error: d.boostError.Error()}
	}
	b := d.boost.Stats()
	s := &api.BoostStatus{
		Priority: "nice", Raised: b.Raised, Completed: b.Completed, Expired: b.Expired, Refused: b.Refused, CPUNS: b.CPU.Nanoseconds(),
	}
	if b.RealTime {
		s.Priority = "sched_rr"
	}
	return s
}

// Snapshots implements api.Backend.
func (d *daemon) Snapshots() ([]api.SnapshotInfo, error) {
	infos, broken, err := d.store.List()
	if err != nil {
		return nil, err
	}
	for _, b := range broken {
		d.log.Warn("cannot read snapshot", zap.String("id", b.ID), zap.Error(b.Err))
	}
	list := make([]api.SnapshotInfo, 0, len(infos))
	for _, i := range infos {
		list = append(list, api.SnapshotInfo{ID: i.ID, Time: i.Time, Rule: i.Rule, Reason: i.Reason, DelayNS: i.DelayNS, Bytes: i.Bytes, Dir: i.Dir,
			Pinned: i.Pinned, Kept: i.Kept})
	}
	return list, nil
}

// Recent implements api.Backend.
func (d *daemon) Recent(rule string) []*events.Outlier { return d.feed.Recent(rule) }

// Subscribe implements api.Backend.
func (d *daemon) Subscribe(rule, after string) (*api.Subscription, error) {
	return d.feed.Subscribe(rule, after)
}

var _ api.Backend = (*daemon)(nil)

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
