package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

// newLines returns lines that are kept, and the time at which they begin.
func newLines() (*outlierLines, *observer.ObservedLogs, time.Time) {
	core, kept := observer.New(zap.InfoLevel)
	return newOutlierLines(zap.New(core)), kept, time.Now()
}

func lineOutlier(rule string, n int) *events.Outlier {
	return &events.Outlier{
		ID: fmt.Sprintf("%s-%d", rule, n), Rule: rule, Track: "wakeup", Cause: events.CauseThreshold, DelayNS: 20e6, ThresholdNS: 5e6,
		Task: events.Task{PID: 7, TID: 8, Comm: "vic\ntim"}, Time: time.Unix(1, 0),
	}
}

// A line is written once, when all is known: the verdict, or the names, or that
// neither comes.
func TestLineWaitsForItsVerdict(t *testing.T) {
	snapshot := "id"
	explained := &events.Explained{Verdict: "It waited.", Cause: "preempted", By: "hog", ByKind: "task", NS: 19e6}
	kinds := []struct {
		partial, snapshot bool
		then              []string // what is published of it: completed, explained
		early, late       int      // lines, before and after its time is over
	}{
		{early: 1},
		{partial: true, late: 1},
		{partial: true, then: []string{"completed"}, early: 1},
		{snapshot: true, late: 1},
		{snapshot: true, then: []string{"explained"}, early: 1},
		{partial: true, snapshot: true, then: []string{"completed", "explained"}, early: 1},
		{partial: true, snapshot: true, then: []string{"explained", "completed"}, early: 1},
		{partial: true, snapshot: true, then: []string{"completed"}, late: 1},
	}
	for i, k := range kinds {
		l, kept, now := newLines()
		o := lineOutlier("wakeup", i)
		o.Partial = k.partial
		if k.snapshot {
			o.Snapshot = &snapshot
		}
		l.take(o, now)
		for _, what := range k.then {
			again := *o
			if what == "completed" {
				again.Partial, again.Completed, again.Task.Cgroup = false, true, "/a"
			} else {
				again.Explained, again.Finished = explained, true
			}
			l.take(&again, now)
		}
		l.writeDue(now.Add(time.Second))
		assert.Check(t, is.Len(kept.All(), k.early), "%+v: before its time", k)
		l.writeDue(now.Add(verdictTime))
		l.writeDue(now.Add(2 * verdictTime))
		assert.Assert(t, is.Len(kept.All(), k.early+k.late), "%+v", k)
		assert.Check(t, len(l.wait)+len(l.order) == 0, "%+v: something waits on", k)
		line := kept.All()[0]
		_, verdict := line.ContextMap()["verdict"]
		assert.Check(t, verdict == strings.Contains(fmt.Sprint(k.then), "explained"), "%+v: %+v", k, line)
	}
}

// Lines say where the tasks run that they name.
func TestLinePlaces(t *testing.T) {
	l, kept, now := newLines()
	o := lineOutlier("wakeup", 1)
	o.Task.Title, o.Task.Place = "app.py", events.Place{Unit: "u.service", Runtime: "podman", ContainerName: "c", Image: "c:1", Pod: "p", Namespace: "n"}
	batch := events.Place{Pod: "batch"}
	o.OnCPU = &events.OnCPU{Peer: events.Peer{TID: 9, Identity: &events.Identity{Place: batch}}}
	o.Waker = &events.Waker{Peer: events.Peer{TID: 3, Identity: &events.Identity{Title: "nginx: worker process"}}}
	o.Explained = &events.Explained{By: "hog 9", ByKind: "task", ByTask: &events.Identity{Place: batch}}
	o.Finished = true
	o.Partial, o.Snapshot = false, nil
	l.wait[o.ID], l.rules[o.Rule] = o, &ruleLines{}
	l.take(o, now)
	assert.Assert(t, is.Len(kept.All(), 1))
	line := kept.All()[0].ContextMap()
	for key, want := range map[string]any{
		"title": "app.py", "unit": "u.service", "container_runtime": "podman", "container_image": "c:1", "container_name": "c", "pod": "p", "namespace": "n",
		"on_cpu_pod": "batch", "waker_title": "nginx: worker process", "culprit_pod": "batch", "waker_pod": nil,
	} {
		assert.Check(t, is.Equal(line[key], want), key)
	}
}

func TestLineFields(t *testing.T) {
	l, kept, now := newLines()
	o := lineOutlier("wakeup", 1)
	snapshot := "id"
	o.Snapshot, o.OnCPU = &snapshot, &events.OnCPU{Peer: events.Peer{TID: 9, Comm: "hog"}}
	o.Block, o.Waker, o.Syscall = &events.BlockInfo{Device: "vda", Op: "read"}, &events.Waker{Peer: events.Peer{TID: 3}}, &events.SyscallInfo{Name: "read"}
	l.take(o, now)
	again := *o
	again.Explained, again.Finished = &events.Explained{Verdict: "It waited.", Cause: "preempted", By: "hog", ByKind: "task", NS: 19e6}, true
	l.take(&again, now)
	assert.Assert(t, is.Len(kept.All(), 1))
	line := kept.All()[0]
	assert.Check(t, is.Equal(line.Message, `wakeup: 20.0ms: vic\x0atim[8] read of 0B on vda: It waited.`))
	assert.Check(t, is.DeepEqual(line.ContextMap(), map[string]any{
		"id": "wakeup-1", "rule": "wakeup", "track": "wakeup", "cause": "threshold", "delay_ns": int64(20e6), "threshold_ns": int64(5e6),
		"ended": time.Unix(1, 0).UTC(), "pid": int64(7), "tid": int64(8), "comm": "vic\ntim", "uid": int64(0), "cpu": int64(0),
		"snapshot": "id", "device": "vda", "op": "read", "syscall": "read", "waker_tid": int64(3), "on_cpu_tid": int64(9), "on_cpu_comm": "hog",
		"verdict": "It waited.", "verdict_cause": "preempted", "culprit": "hog", "culprit_kind": "task", "verdict_ns": int64(19e6),
	}))
}

// Lines are limited per rule and in all. What is left out is counted and said, and a
// rare rule is heard beside many noisy ones.
func TestLinesAreLimited(t *testing.T) {
	l, kept, now := newLines()
	const noisy, each = 50, 1000
	for i := range each {
		for rule := range noisy {
			l.take(lineOutlier(fmt.Sprint("noisy", rule), i), now.Add(time.Duration(i)*time.Millisecond))
		}
	}
	now = now.Add(each * time.Millisecond)
	l.take(lineOutlier("rare", 1), now)
	assert.Check(t, is.Len(kept.FilterField(zap.String("rule", "rare")).All(), 1))
	written := uint64(kept.Len())
	assert.Check(t, written <= linesBurstOfAll+linesOfAll+noisy+1, "%d lines", written)
	var left, said uint64
	for rule := range noisy {
		left += l.unlogged.get(fmt.Sprint("noisy", rule))
	}
	assert.Check(t, is.Equal(written+left, uint64(noisy*each+1)))
	l.tellLeft()
	l.tellLeft() // once is enough
	for _, line := range kept.All() {
		if n, ok := line.ContextMap()["left_out"]; ok {
			said += n.(uint64)
		}
	}
	assert.Check(t, is.Equal(said, left))

	l, kept, now = newLines() // one rule alone
	for i := range 100 {
		l.take(lineOutlier("noisy", i), now)
	}
	assert.Check(t, is.Len(kept.All(), linesBurst))
	l.take(lineOutlier("noisy", 100), now.Add(time.Second))
	last := kept.All()[linesBurst]
	assert.Check(t, is.Equal(last.ContextMap()["left_out"], uint64(100-linesBurst)))
}

// Lines that wait are bounded, and none is lost at the end.
func TestLinesAtTheEnd(t *testing.T) {
	l, kept, _ := newLines()
	outliers := make(chan *events.Outlier, 20)
	snapshot := "id"
	for i := range 20 {
		o := lineOutlier("wakeup", i)
		o.Snapshot = &snapshot
		outliers <- o
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.serve(ctx, outliers, func() uint64 { return 3 })
	assert.Check(t, is.Len(kept.All(), 20))
	assert.Check(t, is.Equal(l.missed.Load(), uint64(3)))
}
