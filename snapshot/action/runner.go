// Package action runs the operator's programs after an outlier or a snapshot. It is the
// only package that starts programs.
package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
)

// Options configures a Runner. The zero value is usable.
type Options struct {
	User        string        // default user; "": the daemon's own
	Concurrency int           // concurrent jobs; 0: 2
	Queue       int           // queued jobs; 0: 16
	MaxOutput   int64         // bytes kept of an action's output; 0: 1 MiB
	MaxCPU      time.Duration // CPU time of one action; 0: no limit. Needs Supervisor
	MaxMemory   int64         // bytes of one action; 0: no limit. Needs Supervisor
	TotalCPU    float64       // share of the time of all CPUs that all actions may use; 0: no limit. Needs Supervisor
	TotalMemory int64         // bytes of all actions; 0: no limit. Needs Supervisor
	Timeout     time.Duration // default time limit; 0: 30s
	Grace       time.Duration // from SIGTERM to SIGKILL; 0: 5s
	StopTimeout time.Duration // time that running actions get when stopping; 0: 10s
	// Supervisor is a program that calls Supervise if its first argument is Verb.
	// Without one, processes that leave the action's process group survive it.
	Supervisor string
	// Cgroup is the directory of a cgroup v2 in which Runner may make one for each action;
	// empty: actions run in that of the daemon. Needs Supervisor.
	Cgroup string
	// Home is the directory of the cgroup v2 that Runner itself is in, to which supervisors go
	// back where they must join that of their action to start it. Empty: they cannot.
	Home   string
	Logger *zap.Logger // nil: no log
	// OnResult, if set, is called for every action that ended, or that did not run because
	// one before it failed, possibly concurrently.
	OnResult func(Result)
	// Guard recovers, logs and counts panics; nil: they are only recovered.
	Guard *guard.Guard
}

// Job holds all actions of one snapshot or one outlier. They run in order, so that each
// finds the output of earlier ones; different jobs run concurrently.
type Job struct {
	ID     string // of the snapshot, or ""
	Dir    string // of the snapshot, or "" if there is none (yet)
	Reason string // of a trigger
	Items  []Item
	// Unmatched are the rules of actions whose `if` does not hold: they are only counted.
	Unmatched []string
	// Done, if set, is called once, when all actions have ended or the job was
	// rejected. It may release a Store.Hold.
	Done func()
}

// Stats are counters since the start, by rule.
type Stats struct {
	Ran       map[string]uint64 // started
	Succeeded map[string]uint64 // exit status 0
	Failed    map[string]uint64 // not started, or exit status not 0
	TimedOut  map[string]uint64 // of the failed ones
	Skipped   map[string]uint64 // action_skipped: queue full or stopping
	Hung      map[string]uint64 // action_hung: killed, but stuck in the kernel and left behind
	OverLimit map[string]uint64 // of the failed ones: killed for CPU time or memory
	Limited   map[string]uint64 // not run: its `every` is not over
	Unmatched map[string]uint64 // not run: its `if` does not hold
	NotRun    map[string]uint64 // not run: one before it failed
	Running   int               // jobs
	Waiting   int               // jobs
}

// counters lists all maps.
func (s *Stats) counters() []*map[string]uint64 {
	return []*map[string]uint64{
		&s.Ran, &s.Succeeded, &s.Failed, &s.TimedOut, &s.Skipped, &s.Hung, &s.OverLimit, &s.Limited, &s.Unmatched, &s.NotRun,
	}
}

// Runner runs jobs. Submit and Stats may be called concurrently.
type Runner struct {
	opts Options
	log  *zap.Logger
	// kill is closed when running actions must be killed.
	kill    chan struct{}
	workers sync.WaitGroup
	cgroups atomic.Uint64 // cgroups so far
	totals  totals

	mu          sync.Mutex // guards what follows
	concurrency int
	queue       int
	jobs        []Job // that wait
	running     int
	begun       bool
	stopped     bool
	stats       Stats
	bounds      bounds
	limits      limiter
	last        []Result  // the latest ones
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
	r := &Runner{
		opts: o, log: o.Logger,
		kill: make(chan struct{}), concurrency: o.Concurrency, queue: o.Queue,
		bounds: bounds{cpu: o.MaxCPU, memory: o.MaxMemory, output: o.MaxOutput}, limits: limiter{},
	}
	for _, m := range r.stats.counters() {
		*m = map[string]uint64{}
	}
	r.totals.set(o.TotalCPU, o.TotalMemory, o.Cgroup)
	return r
}

// Submit queues a job without blocking. If the queue is full or the runner is stopping,
// it returns false and counts each action as skipped. A job without items, or whose
// items may not run now, is done at once.
func (r *Runner) Submit(j Job) bool {
	r.mu.Lock()
	for _, rule := range j.Unmatched {
		r.stats.Unmatched[rule]++
	}
	now := time.Now()
	j.Items = slices.DeleteFunc(j.Items, func(it Item) bool { return !r.allowLocked(&it, now, true) })
	if len(j.Items) == 0 {
		r.mu.Unlock()
		j.done()
		return true
	}
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

// allowLocked reports whether the limit of an action lets it run. It counts those that
// may not.
func (r *Runner) allowLocked(it *Item, now time.Time, peek bool) bool {
	ok := r.limits.allow(it, now, peek)
	if !ok {
		r.stats.Limited[it.Outlier.Rule]++
	}
	return ok
}

// Set changes Concurrency, Queue and the limits. Jobs that run or wait already stay; those
// of all actions hold for them, too, if there were some when they began.
func (r *Runner) Set(o *Options) {
	r.totals.set(o.TotalCPU, o.TotalMemory, r.opts.Cgroup)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.concurrency, r.queue = o.Concurrency, o.Queue
	r.bounds = bounds{cpu: o.MaxCPU, memory: o.MaxMemory, output: cmp.Or(o.MaxOutput, r.bounds.output)}
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
	s := r.stats
	s.Running, s.Waiting = r.running, len(r.jobs)
	for _, m := range s.counters() {
		*m = maps.Clone(*m)
	}
	return s
}

// Last returns the latest results, oldest first.
func (r *Runner) Last() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.last)
}

// keepLast is how many results Last returns.
const keepLast = 16

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
	logs := r.openOutputs(&j)
	var results []Result
	broken := map[string]int{} // by owner: the action that failed
	spent := map[string]used{} // by owner
	for i := range j.Items {
		it := &j.Items[i]
		r.mu.Lock()
		stopped, allowed := r.stopped, true
		if stopped {
			r.skipLocked(Job{ID: j.ID, Items: j.Items[i:]})
		} else if _, ok := broken[it.Owner]; !ok {
			allowed = r.allowLocked(it, time.Now(), false)
		}
		r.mu.Unlock()
		if stopped {
			discard(logs[i:])
			break
		}
		var res Result
		if first, ok := broken[it.Owner]; ok {
			res = notRun(&j, i, logs[i], fmt.Sprintf("action %d failed", first))
		} else if !allowed {
			res = notRun(&j, i, logs[i], "it ran for the same key less than "+it.Action.Limit.Every.String()+" ago")
			res.Limited = true
		} else if limits, left := r.boundsOf(&it.Action).within(it.Limits, spent[it.Owner]); !left {
			res = notRun(&j, i, logs[i], "the actions of its rule have used up their CPU time of "+it.Limits.MaxCPU.String())
		} else {
			res = r.run(j, i, logs[i], limits)
		}
		u := spent[it.Owner]
		u.add(&res)
		spent[it.Owner] = u
		if it.Action.StopOnFailure && !res.OK() && res.NotRun == "" {
			broken[it.Owner] = i
		}
		r.count(&res)
		results = append(results, res)
	}
	if err := writeResults(j.Dir, results); err != nil {
		r.log.Warn("cannot save the results of actions", zap.String("snapshot", j.ID), zap.Error(err))
	}
}

// notRun is the result of an action that did not run.
func notRun(j *Job, index int, log opened, why string) Result {
	it := &j.Items[index]
	res := newResult(j, index)
	res.Time, res.NotRun = time.Now(), why
	if log.out != nil {
		log.out.header(it, index, it.Action.User, res.Time)
		log.out.trailer(&res)
		res.Err = log.out.close()
	}
	return res
}

// discard closes unused outputs.
func discard(logs []opened) {
	for _, l := range logs {
		if l.out != nil {
			_ = l.out.close() // nothing was written
		}
	}
}

func (r *Runner) count(res *Result) {
	r.mu.Lock()
	add := func(to map[string]uint64, is bool) {
		if is {
			to[res.Rule]++
		}
	}
	ran := res.NotRun == ""
	add(r.stats.NotRun, !ran && !res.Limited) // allowLocked counted those that are
	add(r.stats.Ran, res.Started)
	add(r.stats.Succeeded, res.OK())
	add(r.stats.Failed, ran && !res.OK())
	add(r.stats.TimedOut, res.TimedOut)
	add(r.stats.OverLimit, res.Over != "")
	add(r.stats.Hung, errors.Is(res.Err, errUnkillable))
	if !res.Limited {
		r.last = append(r.last[max(len(r.last)-keepLast+1, 0):], *res)
	}
	r.mu.Unlock()
	if res.Limited {
		return
	}
	fields := []zap.Field{
		zap.String("rule", res.Rule), zap.Strings("run", res.Run),
		zap.String("snapshot", res.ID), zap.Duration("took", res.Took), zap.String("result", res.String()),
	}
	if res.Output != "" {
		fields = append(fields, zap.String("output", res.Output))
	}
	switch {
	case !ran:
		r.log.Info("action not run", fields...)
	case res.OK():
		r.log.Info("action ended", fields...)
	default:
		r.log.Warn("action failed", fields...)
	}
	if r.opts.OnResult != nil {
		r.opts.OnResult(*res)
	}
}
