package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/internal/pulse"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/tracker/events"
)

const (
	// linesPerRule and linesBurst limit the lines of a rule, by second; linesOfAll and
	// linesBurstOfAll those of all rules. But a rule gets a line every rareLine, whatever
	// the others do.
	linesPerRule, linesBurst    = 1, 30
	linesOfAll, linesBurstOfAll = 10, 100
	rareLine                    = 10 * time.Second
	// verdictTime is how long a line waits for its outlier's verdict, and namesTime for
	// its names if there is no snapshot.
	verdictTime = 30 * time.Second
	namesTime   = 2 * time.Second
	// maxUnwritten bounds the lines that wait; beyond that the oldest is written.
	maxUnwritten = 1024
	// unloggedEvery is how often rules are named whose outliers were not all logged.
	unloggedEvery = time.Minute
)

// outlierLines writes a line for each outlier to the log when its verdict is known. It
// reads what the feed publishes, so that nothing waits for it.
type outlierLines struct {
	log      *zap.Logger
	unlogged ruleCounter   // outliers that the limits left out, by rule
	missed   atomic.Uint64 // outliers that came faster than they were read

	// Used by the goroutine of logOutliers.
	all   *rate.Limiter
	rules map[string]*ruleLines
	wait  map[string]*events.Outlier // by id
	order []unwritten                // by due
}

// ruleLines are the lines of a rule.
type ruleLines struct {
	limit *rate.Limiter
	last  time.Time // of the last line
	left  uint64    // outliers left out since then
}

// unwritten is a line that waits for its verdict.
type unwritten struct {
	id  string
	due time.Time
}

func newOutlierLines(log *zap.Logger) *outlierLines {
	return &outlierLines{
		log: log, all: rate.NewLimiter(linesOfAll, linesBurstOfAll),
		rules: map[string]*ruleLines{}, wait: map[string]*events.Outlier{},
	}
}

// logOutliers writes lines until ctx is done.
func (d *daemon) logOutliers(ctx context.Context) error {
	outliers, cancel, lost := d.feed.Tap()
	defer cancel()
	d.lines.serve(ctx, outliers, lost)
	return nil
}

func (l *outlierLines) serve(ctx context.Context, outliers <-chan *events.Outlier, lost func() uint64) {
	next := func() <-chan time.Time {
		if len(l.wait) > 0 {
			return pulse.After(time.Second)
		}
		return pulse.After(pulse.Calm)
	}
	tick, told := next(), time.Now()
	for {
		select {
		case o := <-outliers:
			idle := len(l.wait) == 0
			if l.take(o, time.Now()); idle && len(l.wait) > 0 {
				tick = next()
			}
		case now := <-tick:
			l.missed.Store(lost())
			l.writeDue(now)
			if now.Sub(told) >= unloggedEvery {
				told = now
				l.tellLeft()
			}
			tick = next()
		case <-ctx.Done():
			for len(outliers) > 0 {
				l.take(<-outliers, time.Now())
			}
			l.missed.Store(lost())
			l.writeDue(time.Now().Add(time.Hour))
			l.tellLeft()
			return
		}
	}
}

// take handles an outlier, its completion, or its verdict.
func (l *outlierLines) take(o *events.Outlier, now time.Time) {
	if o.Completed || o.Finished {
		if l.wait[o.ID] == nil {
			return // left out, or written before
		}
		l.wait[o.ID] = o
		if o.Finished || o.Snapshot == nil {
			l.write(o.ID)
		}
		return
	}
	r := l.rules[o.Rule]
	if r == nil {
		r = &ruleLines{limit: rate.NewLimiter(linesPerRule, linesBurst)}
		l.rules[o.Rule] = r
	}
	if !r.limit.AllowN(now, 1) || !l.all.AllowN(now, 1) && now.Sub(r.last) < rareLine {
		r.left++
		l.unlogged.add(o.Rule)
		return
	}
	r.last = now
	l.wait[o.ID] = o
	switch {
	case o.Snapshot != nil:
		l.order = append(l.order, unwritten{o.ID, now.Add(verdictTime)})
	case o.Partial:
		l.order = append(l.order, unwritten{o.ID, now.Add(namesTime)})
	default:
		l.write(o.ID)
	}
	if len(l.order) > maxUnwritten {
		l.write(l.order[0].id)
		l.order = l.order[1:]
	}
}

// writeDue writes the lines that have waited long enough.
func (l *outlierLines) writeDue(now time.Time) {
	kept := l.order[:0]
	for _, u := range l.order {
		switch {
		case l.wait[u.id] == nil: // written
		case now.Before(u.due):
			kept = append(kept, u)
		default:
			l.write(u.id)
		}
	}
	l.order = kept
}

// write writes the line of an outlier, unless that was done.
func (l *outlierLines) write(id string) {
	o := l.wait[id]
	if o == nil {
		return
	}
	delete(l.wait, id)
	fields := outlierFields(o)
	if r := l.rules[o.Rule]; r.left > 0 {
		fields = append(fields, zap.Uint64("left_out", r.left))
		r.left = 0
	}
	l.log.Info(term.Sentence(o), fields...)
}

// tellLeft says of which rules outliers were left out, if no line of theirs came since.
func (l *outlierLines) tellLeft() {
	for rule, r := range l.rules {
		if r.left == 0 {
			continue
		}
		l.log.Info(fmt.Sprintf("%s: %s outliers were not logged, there are too many: see tailcam events",
			term.Clean(rule), term.Count(r.left)), zap.String("rule", rule), zap.Uint64("left_out", r.left))
		r.left = 0
	}
}

// outlierFields are those of an outlier's line. Names and meanings are stable.
func outlierFields(o *events.Outlier) []zap.Field {
	fields := []zap.Field{
		zap.String("id", o.ID), zap.String("rule", o.Rule), zap.String("track", o.Track), zap.String("cause", string(o.Cause)),
		zap.Int64("delay_ns", o.DelayNS), zap.Int64("threshold_ns", o.ThresholdNS), zap.Time("ended", o.Time.UTC()),
		zap.Int("pid", o.Task.PID), zap.Int("tid", o.Task.TID), zap.String("comm", o.Task.Comm), zap.Int("uid", o.Task.UID),
		zap.Int("cpu", o.CPU),
	}
	add := func(key, value string) {
		if value != "" {
			fields = append(fields, zap.String(key, value))
		}
	}
	add("cgroup", o.Task.Cgroup)
	add("container", o.Task.Container)
	addPlace(add, "", o.Task.Title, &o.Task.Place)
	add("state", o.State)
	if o.Syscall != nil {
		add("syscall", o.Syscall.Name)
		add("syscall_abi", o.Syscall.ABI)
	}
	if o.Block != nil {
		add("device", o.Block.Device)
		add("op", o.Block.Op)
	}
	if o.Waker != nil {
		add("waker_comm", o.Waker.Comm)
		add("waker_context", o.Waker.Context)
		fields = append(fields, zap.Int("waker_tid", o.Waker.TID))
		addIdentity(add, "waker_", o.Waker.Identity)
	}
	if o.OnCPU != nil {
		add("on_cpu_comm", o.OnCPU.Comm)
		fields = append(fields, zap.Int("on_cpu_tid", o.OnCPU.TID))
		addIdentity(add, "on_cpu_", o.OnCPU.Identity)
	}
	if o.Snapshot != nil {
		add("snapshot", *o.Snapshot)
	}
	if e := o.Explained; e != nil {
		add("verdict", e.Verdict)
		add("verdict_cause", e.Cause)
		add("verdict_confidence", e.Confidence)
		add("verdict_pattern", e.Pattern)
		add("culprit", e.By)
		add("culprit_kind", e.ByKind)
		addIdentity(add, "culprit_", e.ByTask)
		fields = append(fields, zap.Int64("verdict_ns", e.NS))
	}
	if o.Suppressed > 0 {
		fields = append(fields, zap.Uint64("snapshots_suppressed", o.Suppressed))
	}
	return fields
}

// addPlace adds what a task is called, and where it runs.
func addPlace(add func(key, value string), prefix, title string, at *events.Place) {
	add(prefix+"title", title)
	add(prefix+"unit", at.Unit)
	add(prefix+"container_name", at.ContainerName)
	add(prefix+"container_runtime", at.Runtime)
	add(prefix+"container_image", at.Image)
	add(prefix+"pod", at.Pod)
	add(prefix+"namespace", at.Namespace)
}

func addIdentity(add func(key, value string), prefix string, id *events.Identity) {
	if id != nil {
		addPlace(add, prefix, id.Title, &id.Place)
	}
}
