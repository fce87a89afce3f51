// Package action runs what an operator wants to happen after an outlier or a
// snapshot. It is the only package that starts programs.
package action

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// Options configures a Runner. The zero value is usable.
type Options struct {
	User        string        // runs actions that name no user; empty: the daemon's own
	Concurrency int           // jobs at once; 0: 2
	Queue       int           // jobs that wait; 0: 16
	MaxOutput   int64         // bytes of an action's output that are kept; 0: 1 MiB
	Timeout     time.Duration // of actions that name none; 0: 30s
	Grace       time.Duration // from SIGTERM to SIGKILL; 0: 5s
	StopTimeout time.Duration // how long a stop waits for running actions; 0: 10s
	// Supervisor is a program that calls Supervise when its first argument is Verb.
	// Empty: what leaves an action's process group outlives it.
	Supervisor string
	Logger     *zap.Logger // nil: silent
	// OnResult, if set, is told of every action that ended. It may be called
	// by several goroutines.
	OnResult func(Result)
	// Guard counts and logs panics that what actions say has caused. Nil: they
	// are only recovered.
	Guard *guard.Guard
}

// Job is all the actions of one snapshot, or of one outlier. They run one after
// the other, so that a later one finds what an earlier one left in the
// snapshot; different jobs run side by side.
type Job struct {
	ID    string // of the snapshot, or empty
	Dir   string // of the snapshot; empty: there is none (yet)
	Items []Item
	// Done, if set, is called once, when all actions have ended or the job was
	// refused. Store.Hold's release belongs here.
	Done func()
}

// Item is one action and the outlier that it is told of.
type Item struct {
	Action  rules.Action
	Outlier events.Outlier
}

// ItemsFor lists what has to run for the outliers of one snapshot (on is
// rules.OnSnapshot), or for one outlier (rules.OnOutlier): the actions of each
// rule once, in the order of the rule file, told of the rule's first outlier.
// Rules that rule does not find (any more) are left out.
func ItemsFor(on string, outliers []events.Outlier, rule func(name string) *rules.Rule) []Item {
	var items []Item
	seen := map[string]bool{}
	for _, o := range outliers {
		if seen[o.Rule] {
			continue
		}
		seen[o.Rule] = true
		r := rule(o.Rule)
		if r == nil {
			continue
		}
		for _, a := range r.Actions {
			if a.On == on {
				items = append(items, Item{Action: a, Outlier: o})
			}
		}
	}
	return items
}

// Stats counts since start. The maps go by rule.
type Stats struct {
	Ran      map[string]uint64 // started, whatever came of it
	Failed   map[string]uint64 // could not start, or ended other than with status 0
	TimedOut map[string]uint64 // of the failed
	Skipped  map[string]uint64 // action_skipped: queue full, or stopping
	Hung     map[string]uint64 // action_hung: killed, and left behind as the kernel does not let them go
}

// Runner runs jobs. Submit and Stats may be called by several goroutines.
type Runner struct {
	opts Options
	log  *zap.Logger
	jobs chan Job
	// kill is closed when running actions must end now.
	kill chan struct{}

	mu      sync.Mutex
	stopped bool
	stats   Stats
	nextLog time.Time // of the next line about a refused job
}

// New fills in the defaults. Nothing runs before Run.
func New(o Options) *Runner {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Timeout, 30*time.Second)
	def(&o.Grace, 5*time.Second)
	def(&o.StopTimeout, 10*time.Second)
	if o.Concurrency <= 0 {
		o.Concurrency = 2
	}
	if o.Queue <= 0 {
		o.Queue = 16
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = 1 << 20
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Runner{
		opts: o, log: o.Logger,
		jobs: make(chan Job, o.Queue),
		kill: make(chan struct{}),
		stats: Stats{
			Ran: map[string]uint64{}, Failed: map[string]uint64{},
			TimedOut: map[string]uint64{}, Skipped: map[string]uint64{}, Hung: map[string]uint64{},
		},
	}
}

// Submit queues a job without blocking. If the queue is full or the runner is
// stopping, every action of it counts as skipped for its rule, and the answer
// is false. A job without items is done at once.
func (r *Runner) Submit(j Job) bool {
	if len(j.Items) == 0 {
		j.done()
		return true
	}
	r.mu.Lock()
	if !r.stopped {
		select {
		case r.jobs <- j:
			r.mu.Unlock()
			return true
		default:
		}
	}
	r.skipLocked(j)
	r.mu.Unlock()
	j.done()
	return false
}

func (r *Runner) skipLocked(j Job) {
	for _, it := range j.Items {
		r.stats.Skipped[it.Outlier.Rule]++
	}
	if now := time.Now(); !now.Before(r.nextLog) {
		r.nextLog = now.Add(time.Minute)
		r.log.Warn("actions skipped: too many are waiting, or the daemon is stopping; see actions.queue and actions.concurrency",
			zap.String("snapshot", j.ID), zap.Int("actions", len(j.Items)))
	}
}

func (j *Job) done() {
	if j.Done != nil {
		j.Done()
	}
}

// Stats returns a copy of the counters.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{
		Ran: maps.Clone(r.stats.Ran), Failed: maps.Clone(r.stats.Failed),
		TimedOut: maps.Clone(r.stats.TimedOut), Skipped: maps.Clone(r.stats.Skipped), Hung: maps.Clone(r.stats.Hung),
	}
}

// Run carries out jobs until the context ends. Then it starts no more, waits
// for running actions up to StopTimeout, and kills what is left. It may be
// called once.
func (r *Runner) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range r.opts.Concurrency {
		workers.Go(func() {
			for j := range r.jobs {
				_ = r.opts.Guard.Do(guard.Action, func() error { r.job(j); return nil }) // it is logged
			}
		})
	}
	<-ctx.Done()
	r.mu.Lock()
	r.stopped = true
	close(r.jobs) // Submit sends only under the lock and looks at stopped first
	r.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		workers.Wait()
	}()
	timer := time.NewTimer(r.opts.StopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
	}
	close(r.kill)
	<-ended // each action's own end is bounded by Grace
	return fmt.Errorf("stop actions: some did not end within %s and were killed", r.opts.StopTimeout)
}

// job runs one job's actions in order.
func (r *Runner) job(j Job) {
	defer j.done()
	defer unshare(j.Dir)
	logs := openOutputs(&j, r.opts.MaxOutput)
	for i := range j.Items {
		r.mu.Lock()
		stopped := r.stopped
		if stopped {
			r.skipLocked(Job{ID: j.ID, Items: j.Items[i:]})
		}
		r.mu.Unlock()
		if stopped {
			discard(logs[i:])
			return
		}
		r.count(r.run(j, i, logs[i]))
	}
}

// discard leaves outputs empty.
func discard(logs []opened) {
	for _, l := range logs {
		if l.out != nil {
			_ = l.out.close() // nothing was written
		}
	}
}

func (r *Runner) count(res Result) {
	r.mu.Lock()
	if res.Started {
		r.stats.Ran[res.Rule]++
	}
	if !res.OK() {
		r.stats.Failed[res.Rule]++
	}
	if res.TimedOut {
		r.stats.TimedOut[res.Rule]++
	}
	if errors.Is(res.Err, errUnkillable) {
		r.stats.Hung[res.Rule]++
	}
	r.mu.Unlock()

	fields := []zap.Field{
		zap.String("rule", res.Rule), zap.Strings("run", res.Run),
		zap.String("snapshot", res.ID), zap.Duration("took", res.Took), zap.String("result", res.String()),
	}
	if res.Output != "" {
		fields = append(fields, zap.String("output", res.Output))
	}
	if res.OK() {
		r.log.Info("action ended", fields...)
	} else {
		r.log.Warn("action failed", fields...)
	}
	if r.opts.OnResult != nil {
		r.opts.OnResult(res)
	}
}
