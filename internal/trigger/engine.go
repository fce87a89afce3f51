// Package trigger watches what the rules of track trigger name: pressure stall
// information, the kernel's log, health checks, core dumps, alerts, promises about
// distributions, other hosts' outliers. Each rule has a goroutine of its own, so that a source
// that does not answer holds up no other.
package trigger

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// Pauses after a source has failed.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Options configure an Engine. Fire is required.
type Options struct {
	// Fire takes what a rule wants reported. It is called on the goroutine of the
	// rule's source, or of Alert or Peer, which wait for it.
	Fire func(*Firing)
	// CgroupDir returns the directory of a cgroup v2 path; nil: the usual mount point.
	CgroupDir func(path string) (string, error)
	// CgroupPath returns the path of a cgroup v2 by its id; nil: none is known.
	CgroupPath func(id uint64) (string, error)
	// Delays is what promises (slo) are about; nil: they cannot be watched.
	Delays Delays
	// Rate is how many outliers a rule may have each second, after Burst at once; 0: no limit.
	Rate, Burst int
	Guard       *guard.Guard // nil: panics are only recovered
	Log         *zap.Logger  // nil: no log
}

// Event is what a source has noticed.
type Event struct {
	Reason string
	Time   time.Duration // that it is about, until End; 0: none in particular
	End    uint64        // in nanoseconds of CLOCK_MONOTONIC; 0: now
	Limit  time.Duration // that Time has passed; 0: none
	Task   *Task         // that it names; nil: none
	Target *rules.Target // that it describes, for rules without one; nil: none

	TraceID, SpanID string               // of what Task did; empty: unknown
	Activity        *events.ActivityInfo // that Task worked for; nil: unknown
	Peer            *events.PeerOutlier  // that it is about; nil: none
	With            []*Event             // the same of further tasks, for the same snapshot
}

// Task is a task as a source names it. The task may be gone.
type Task struct {
	PID, TID int // PID 0: unknown
	Comm     string
	Cgroup   string // cgroup v2 path; empty: unknown
	// Past: the event is about an earlier time, and another task may have that number now.
	// The rest is known for such alone.
	Past    bool
	UID     int
	Cmdline string
}

// Firing is an event that passed the limits of its rule.
type Firing struct {
	*Event
	Rule          *rules.Rule
	WantsSnapshot bool
	Suppressed    uint64 // snapshots of the rule that were limited since its last one
}

// State is what has become of a rule.
type State struct {
	Err        error  // why its source is not watched now; nil: it is
	Seen       uint64 // events
	Outliers   uint64
	Limited    uint64 // outliers beyond the rate
	Suppressed uint64 // snapshots beyond the rule's limit
	Lost       uint64 // messages that were overwritten before they were read
	WorstNS    int64
}

// source is one that is being watched.
type source interface {
	// watch reports events until ctx is done or the source fails.
	watch(ctx context.Context, fire func(*Event)) error
	close()
}

// Engine watches the sources of rules. Its methods may be called concurrently.
type Engine struct {
	opts Options

	mu      sync.Mutex
	ctx     context.Context // nil: Run was not called, or has ended
	list    []rules.Rule
	watches map[string]*watch
	running sync.WaitGroup
}

// watch is a rule with its source.
type watch struct {
	stop context.CancelFunc

	mu        sync.Mutex
	rule      rules.Rule
	state     State
	outliers  *rate.Limiter
	snapshots *rate.Limiter
	skipped   uint64 // snapshots since the last one
	seen      seen
}

// New returns an engine that watches nothing until Run.
func New(o *Options) *Engine {
	e := &Engine{opts: *o, watches: map[string]*watch{}}
	if e.opts.Log == nil {
		e.opts.Log = zap.NewNop()
	}
	if e.opts.CgroupDir == nil {
		e.opts.CgroupDir = func(path string) (string, error) { return "/sys/fs/cgroup" + path, nil }
	}
	if e.opts.CgroupPath == nil {
		e.opts.CgroupPath = func(uint64) (string, error) { return "", errors.ErrUnsupported }
	}
	return e
}

// Set replaces the rules. Others than triggers are left out. What did not change goes on
// as it is.
func (e *Engine) Set(list []rules.Rule) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = rules.Triggers(list)
	if e.ctx != nil {
		e.setLocked()
	}
}

func (e *Engine) setLocked() {
	wanted := map[string]bool{}
	for i := range e.list {
		r := &e.list[i]
		wanted[r.Name] = true
		w := e.watches[r.Name]
		if w != nil && w.update(r) {
			continue
		}
		if w != nil {
			w.stop()
		}
		e.watches[r.Name] = e.startLocked(r)
	}
	for name, w := range e.watches {
		if !wanted[name] {
			w.stop()
			delete(e.watches, name)
		}
	}
}

// update changes what needs no other source; false: the rule needs one.
func (w *watch) update(r *rules.Rule) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !reflect.DeepEqual(w.rule.Trigger, r.Trigger) {
		return false
	}
	if w.rule.Snapshot != r.Snapshot {
		w.snapshots = rate.NewLimiter(rate.Every(r.Snapshot.Every), r.Snapshot.Burst)
	}
	w.rule = *r
	return true
}

func (e *Engine) startLocked(r *rules.Rule) *watch {
	ctx, stop := context.WithCancel(e.ctx)
	w := &watch{stop: stop, rule: *r, outliers: e.limiterLocked()}
	w.snapshots = rate.NewLimiter(rate.Every(r.Snapshot.Every), r.Snapshot.Burst)
	spec := r.Trigger
	e.running.Go(func() { e.keep(ctx, w, r.Name, spec) })
	return w
}

// limiterLocked limits the outliers of one rule.
func (e *Engine) limiterLocked() *rate.Limiter {
	if e.opts.Rate <= 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(e.opts.Rate), max(e.opts.Burst, 1))
}

// SetRate changes Options.Rate and Options.Burst.
func (e *Engine) SetRate(perSecond, burst int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.Rate, e.opts.Burst = perSecond, burst
	for _, w := range e.watches {
		w.mu.Lock()
		w.outliers = e.limiterLocked()
		w.mu.Unlock()
	}
}

// keep watches a source, and again after it has failed, until ctx is done.
func (e *Engine) keep(ctx context.Context, w *watch, name string, spec *rules.TriggerSpec) {
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		began := time.Now()
		err := e.opts.Guard.Do(guard.Trigger, func() error { return e.once(ctx, w, spec) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended")
		}
		if w.failed(err) {
			e.opts.Log.Warn("the source of a trigger failed and is tried again", zap.String("rule", name), zap.Error(err))
		}
		if time.Since(began) > lastRetry {
			pause = firstRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// failed notes why a source is not watched, and reports whether that is news.
func (w *watch) failed(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.state.Err == nil || w.state.Err.Error() != err.Error()
	w.state.Err = err
	return news
}

// once opens and watches a source.
func (e *Engine) once(ctx context.Context, w *watch, spec *rules.TriggerSpec) error {
	s, err := e.open(spec, func(n uint64) {
		w.mu.Lock()
		w.state.Lost += n
		w.mu.Unlock()
	})
	if err != nil {
		return err
	}
	defer s.close()
	w.mu.Lock()
	w.state.Err = nil
	w.mu.Unlock()
	return s.watch(ctx, func(ev *Event) { e.fire(w, ev) })
}

// fire passes an event on, if the limits of its rule allow that.
func (e *Engine) fire(w *watch, ev *Event) bool {
	f := w.take(ev, time.Now())
	if f != nil {
		e.opts.Fire(f)
	}
	return f != nil
}

// open opens the source of a rule. lost counts what it could not read.
func (e *Engine) open(spec *rules.TriggerSpec, lost func(uint64)) (source, error) {
	switch {
	case spec.PSI != nil:
		return openPSI(spec.PSI, e.opts.CgroupDir)
	case spec.Probe != nil:
		return newProbe(spec.Probe), nil
	case spec.Coredump != nil:
		return openCoredump(spec.Coredump, e.opts.CgroupPath, lost)
	case spec.Alert != nil:
		return alerts{}, nil
	case spec.SLO != nil:
		return newSLO(spec.SLO, e.opts.Delays), nil
	case spec.Trace != nil:
		return traces{}, nil
	}
	return openKmsg(spec.Kmsg, lost)
}

// Try opens the source of a rule and closes it again.
func (e *Engine) Try(r *rules.Rule) error {
	s, err := e.open(r.Trigger, func(uint64) {})
	if err == nil {
		s.close()
	}
	return err
}

// take counts an event, and returns nil if the rule's limits refuse it.
func (w *watch) take(ev *Event, now time.Time) *Firing {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Seen++
	if w.rule.Paused {
		return nil
	}
	if !w.outliers.AllowN(now, 1) {
		w.state.Limited++
		return nil
	}
	w.state.Outliers += uint64(1 + len(ev.With))
	w.state.WorstNS = max(w.state.WorstNS, int64(ev.Time))
	rule := w.rule
	f := &Firing{Event: ev, Rule: &rule}
	if !rule.Snapshot.Enabled {
		return f
	}
	if !w.snapshots.AllowN(now, 1) {
		w.state.Suppressed++
		w.skipped++
		return f
	}
	f.WantsSnapshot, f.Suppressed = true, w.skipped
	w.skipped = 0
	return f
}

// State returns the state of a rule; ok is false if it is not watched.
func (e *Engine) State(rule string) (s State, ok bool) {
	e.mu.Lock()
	w := e.watches[rule]
	e.mu.Unlock()
	if w == nil {
		return State{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, true
}

// Run watches until ctx is done, and returns when no more is reported. Call it once.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.ctx = ctx
	e.setLocked()
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()
	e.ctx = nil
	e.mu.Unlock()
	e.running.Wait()
	return nil
}
