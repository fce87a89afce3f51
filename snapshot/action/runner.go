// Package action runs the operator's programs after an outlier or a snapshot. It is the
// only package that starts programs.
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
	User        string        // default user; "": the daemon's own
	Concurrency int           // concurrent jobs; 0: 2
	Queue       int           // queued jobs; 0: 16
	MaxOutput   int64         // bytes kept of an action's output; 0: 1 MiB
	Timeout     time.Duration // default time limit; 0: 30s
	Grace       time.Duration // from SIGTERM to SIGKILL; 0: 5s
	StopTimeout time.Duration // time that running actions get when stopping; 0: 10s
	// Supervisor is a program that calls Supervise if its first argument is Verb.
	// Without one, processes that leave the action's process group survive it.
	Supervisor string
	Logger     *zap.Logger // nil: no log
	// OnResult, if set, is called for every action that ended, possibly concurrently.
	OnResult func(Result)
	// Guard recovers, logs and counts panics; nil: they are only recovered.
	Guard *guard.Guard
}

// Job holds all actions of one snapshot or one outlier. They run in order, so that each
// finds the output of earlier ones; different jobs run concurrently.
type Job struct {
	ID    string // of the snapshot, or ""
	Dir   string // of the snapshot, or "" if there is none (yet)
	Items []Item
	// Done, if set, is called once, when all actions have ended or the job was
	// rejected. It may release a Store.Hold.
	Done func()
}

// Item is an action and the outlier passed to it.
type Item struct {
	Action  rules.Action
	Outlier events.Outlier
}

// ItemsFor lists the actions for the outliers of a snapshot (rules.OnSnapshot) or for
// one outlier (rules.OnOutlier): each rule's actions once, in the order of the rule
// file, with the rule's first outlier. It skips rules that the lookup does not find
// (any more).
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

// Stats are counters since the start, by rule.
type Stats struct {
	Ran       map[string]uint64 // started
	Succeeded map[string]uint64 // exit status 0
	Failed    map[string]uint64 // not started, or exit status not 0
	TimedOut  map[string]uint64 // of the failed ones
	Skipped   map[string]uint64 // action_skipped: queue full or stopping
	Hung      map[string]uint64 // action_hung: killed, but stuck in the kernel and left behind
}

// Runner runs jobs. Submit and Stats may be called concurrently.
type Runner struct {
	opts Options
	log  *zap.Logger
	// kill is closed when running actions must be killed.
	kill    chan struct{}
	workers sync.WaitGroup

	mu          sync.Mutex // guards what follows
	concurrency int
	queue       int
	jobs        []Job // that wait
	running     int
	begun       bool
	stopped     bool
	stats       Stats
	nextLog     time.Time // of rejected jobs
}

// New applies the defaults. Run does the work.
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
		kill: make(chan struct{}), concurrency: o.Concurrency, queue: o.Queue,
		stats: Stats{
			Ran: map[string]uint64{}, Succeeded: map[string]uint64{}, Failed: map[string]uint64{},
			TimedOut: map[string]uint64{}, Skipped: map[string]uint64{}, Hung: map[string]uint64{},
		},
	}
}

// Submit queues a job without blocking. If the queue is full or the runner is stopping,
// it returns false and counts each action as skipped. A job without items is done at
// once.
func (r *Runner) Submit(j Job) bool {
	if len(j.Items) == 0 {
		j.done()
		return true
	}
	r.mu.Lock()
	if !r.stopped && len(r.jobs) < r.queue {
		r.jobs = append(r.jobs, j)
		r.startLocked()
		r.mu.Unlock()
		return true
	}
	r.skipLocked(j)
	r.mu.Unlock()
	j.done()
	return false
}

// Resize changes how many jobs run at once, and how many may wait. Those that run or wait
// already stay.
func (r *Runner) Resize(concurrency, queue int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.concurrency, r.queue = concurrency, queue
	r.startLocked()
}

// startLocked starts as many workers as there is work for.
func (r *Runner) startLocked() {
	for idle := len(r.jobs); r.begun && !r.stopped && r.running < r.concurrency && idle > 0; idle-- {
		r.running++
		r.workers.Go(r.work)
	}
}

// work runs jobs while any wait, unless more workers are at it than there may be.
func (r *Runner) work() {
	for {
		r.mu.Lock()
		if len(r.jobs) == 0 || r.running > r.concurrency && !r.stopped {
			r.running--
			r.mu.Unlock()
			return
		}
		j := r.jobs[0]
		r.jobs = r.jobs[1:]
		r.mu.Unlock()
		_ = r.opts.Guard.Do(guard.Action, func() error { r.job(j); return nil }) // logs its errors
	}
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
		Ran: maps.Clone(r.stats.Ran), Succeeded: maps.Clone(r.stats.Succeeded), Failed: maps.Clone(r.stats.Failed),
		TimedOut: maps.Clone(r.stats.TimedOut), Skipped: maps.Clone(r.stats.Skipped), Hung: maps.Clone(r.stats.Hung),
	}
}

// Run runs jobs until ctx is done. Then it waits for running actions up to StopTimeout
// and kills the rest. Call it once.
func (r *Runner) Run(ctx context.Context) error {
	r.mu.Lock()
	r.begun = true
	r.startLocked()
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.stopped = true // what still waits is skipped
	r.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.workers.Wait()
	}()
	timer := time.NewTimer(r.opts.StopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
	}
	close(r.kill)
	<-ended // bounded by Grace
	return fmt.Errorf("stop actions: some still ran after %s and were killed", r.opts.StopTimeout)
}

// job runs the actions of one job in order.
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

// discard closes unused outputs.
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
	if res.OK() {
		r.stats.Succeeded[res.Rule]++
	} else {
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
