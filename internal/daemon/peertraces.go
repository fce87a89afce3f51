package daemon

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/contexts"
	"github.com/tailcam/tailcam/internal/trigger"
)

const (
	// tracesSince is how long ago work may have ended: no history is older.
	tracesSince = uint64(time.Minute)
	// maxTraceThreads are the threads of one trace that are explained, the latest.
	maxTraceThreads = 16
)

// peerTrace is what this host did for a trace.
type peerTrace struct {
	begin     uint64 // of the other host's outlier, in nanoseconds of CLOCK_MONOTONIC
	parts     []trigger.Part
	snapshots []string // that hold some of it already
}

// findTraces finds what was done for each trace, by its id in hexadecimal: by outliers that are
// remembered, by activities, and by threads whose context is theirs now.
func (d *daemon) findTraces(traces map[string]*peerTrace, now uint64) {
	if len(traces) == 0 {
		return
	}
	since := now - min(tracesSince, now)
	d.traceOutliers(traces, since)
	d.traceActivities(traces, since)
	d.traceContexts(traces, now)
	for _, t := range traces {
		t.settle()
	}
}

// traceOutliers adds those that are remembered: what one has a snapshot of needs no other.
func (d *daemon) traceOutliers(traces map[string]*peerTrace, since uint64) {
	for _, o := range d.feed.Recent("") {
		trace, span, ok := o.TraceContext()
		if !ok || o.EndMono < since {
			continue
		}
		t := traces[hex.EncodeToString(trace[:])]
		switch {
		case t == nil:
		case o.Snapshot != nil:
			if !slices.Contains(t.snapshots, *o.Snapshot) {
				t.snapshots = append(t.snapshots, *o.Snapshot)
			}
		case o.Task.TID != 0 && o.Trigger == nil:
			task := o.Task
			t.parts = append(t.parts, trigger.Part{
				Task:   &trigger.Task{PID: task.PID, TID: task.TID, Comm: task.Comm, Cgroup: task.Cgroup, UID: task.UID, Cmdline: task.Cmdline, Past: true},
				SpanID: hex.EncodeToString(span[:]), Begin: o.StartMono, End: o.EndMono, Activity: o.Activity,
			})
		}
	}
}

// traceActivities adds the threads of live activities, and of those that have ended lately.
func (d *daemon) traceActivities(traces map[string]*peerTrace, since uint64) {
	if d.requests == nil {
		return
	}
	for _, r := range d.requests.OfTraces(slices.Collect(maps.Keys(traces)), since) {
		t := traces[r.TraceID]
		for _, task := range d.activityTasks(r) {
			t.parts = append(t.parts, trigger.Part{Task: task, SpanID: r.SpanID, Begin: max(r.Begin, since), End: r.End, Activity: activityInfo(r)})
		}
	}
}

// activityTasks are the threads that were seen to carry an activity and are still there, or
// else its process, without a thread.
func (d *daemon) activityTasks(r *watch.Record) (list []*trigger.Task) {
	for _, tid := range r.Threads {
		if at := d.hosts.HostThread(r.PID, tid); at != 0 {
			list = append(list, &trigger.Task{PID: r.PID, TID: at, Comm: r.Comm, Cgroup: r.Cgroup, UID: int(r.UID)})
		}
	}
	if len(list) == 0 {
		list = []*trigger.Task{{PID: r.PID, Comm: r.Comm, Cgroup: r.Cgroup, UID: int(r.UID), Past: true}}
	}
	return list
}

// settle orders the parts, the one that ended last first, and leaves out what a thread has in
// another one.
func (t *peerTrace) settle() {
	slices.SortStableFunc(t.parts, func(a, b trigger.Part) int { return cmp.Compare(b.End, a.End) })
	var kept []trigger.Part
	for _, p := range t.parts {
		same := func(k trigger.Part) bool {
			return k.Task.PID == p.Task.PID && k.Task.TID == p.Task.TID && k.Begin <= p.Begin && p.End <= k.End
		}
		if len(kept) < maxTraceThreads && !slices.ContainsFunc(kept, same) {
			kept = append(kept, p)
		}
	}
	t.parts = kept
}

// traceContexts adds the threads that publish one of the contexts now: they may have worked for
// it since the other host's outlier began.
func (d *daemon) traceContexts(traces map[string]*peerTrace, now uint64) {
	if d.contexts == nil || d.contexts.Publishers() == 0 || !d.peers.contexts.Allow() {
		return
	}
	threads, err := d.kernel.ContextThreads()
	if err != nil {
		if !d.peers.contextsFailed.Swap(true) { // it does so each time
			d.log.Warn("the contexts of threads are not found for traces of peers", zap.Error(err))
		}
		return
	}
	for _, c := range contexts.Read(d.symbols, threads, time.Now().Add(contextsTime)) {
		t := traces[hex.EncodeToString(c.Trace.ID[:])]
		if t == nil {
			continue
		}
		t.parts = append(t.parts, trigger.Part{
			Task: &trigger.Task{PID: c.PID, TID: c.TID}, SpanID: hex.EncodeToString(c.Trace.Span[:]),
			Begin: max(t.begin, now-min(tracesSince, now)), End: now,
		})
	}
}

// Contexts are read for so long, and so often in a second.
const (
	contextsTime = 200 * time.Millisecond
	contextsRate = 5
)
