// Package watch follows the activities of all processes that opened: it scans their maps
// for tokens that begin and end, remembers a bounded number of ended ones, keeps the
// distribution of each name, and applies the rules of track activity.
//
// A scan costs the watched programs nothing. An element keeps what an activity has cost until
// it is used again: only the last one of those that used an element between two scans is seen.
// The others are counted, and of those that are slow a client tells at once (see Slow).
package watch

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
)

const (
	interval = 100 * time.Millisecond
	// share is the part of one CPU that scans may take: with many tokens they become rarer.
	share = 100
	// maxInterval bounds that.
	maxInterval = 5 * time.Second
)

// Options configure a Watcher. Processes is required.
type Options struct {
	// Processes lists the processes that have opened and not gone, by their number.
	Processes func() []Process
	// Identify returns who a process is. It is called at its first scan, and again some
	// times later.
	Identify func(pid int) Identity
	// Fire takes the outliers of rules. It must not block.
	Fire func(*Firing)
	// Rate is how many outliers a rule may have each second of each user, after Burst at
	// once; 0: no limit.
	Rate, Burst int
	Now         func() uint64 // in nanoseconds of CLOCK_MONOTONIC; nil: now
	Guard       *guard.Guard  // nil: panics are only recovered
	Log         *zap.Logger   // nil: no log
}

// Identity is who a process is.
type Identity struct {
	Comm string
	rules.Place
}

// Counts are counters since the start.
type Counts struct {
	Ended uint64 // seen to end
	// Missed ended without being seen: their element was used again within one scan.
	Missed uint64
	// Limited messages of clients were ignored, as there were too many.
	Limited uint64
	// TokensRefused and ThreadsRefused found all tokens or slots of their process in use. Their
	// processes say so.
	TokensRefused, ThreadsRefused uint64
}

// Watcher watches. Its methods may be called from any goroutine.
type Watcher struct {
	opts Options

	mu        sync.Mutex
	processes map[uint64]*followed // by Process.Key
	rules     []*ruleState
	version   int // of rules
	store     store
	learned   learned
	counts    Counts
	every     time.Duration // between scans
}

// New returns a watcher that sees nothing before Run.
func New(o *Options) *Watcher {
	w := &Watcher{opts: *o, processes: map[uint64]*followed{}, store: newStore(), every: interval}
	if w.opts.Now == nil {
		w.opts.Now = linux.Monotonic
	}
	if w.opts.Identify == nil {
		w.opts.Identify = func(int) Identity { return Identity{} }
	}
	if w.opts.Fire == nil {
		w.opts.Fire = func(*Firing) {}
	}
	w.opts.Log = cmp.Or(w.opts.Log, zap.NewNop())
	return w
}

// Run scans until ctx is done.
func (w *Watcher) Run(ctx context.Context) error {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		began := time.Now()
		if err := w.opts.Guard.Do(guard.Activities, func() error { w.Scan(); return nil }); err != nil {
			w.opts.Log.Warn("scan activities", zap.Error(err))
		}
		every := min(max(interval, share*time.Since(began)), maxInterval)
		w.mu.Lock()
		w.every = every
		w.mu.Unlock()
		timer.Reset(every)
	}
}

// Scan looks at all tokens of all processes once.
func (w *Watcher) Scan() {
	list := w.opts.Processes()
	who := w.identify(list)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.opts.Now()
	w.tick(now)
	seen := make(map[uint64]bool, len(list))
	for _, p := range list {
		seen[p.Key()] = true
		f := w.processes[p.Key()]
		if f == nil {
			f = newFollowed(p)
			w.processes[p.Key()] = f
		}
		if id, ok := who[p.Key()]; ok {
			f.identity, f.identifyAt, f.version = id, now+uint64(identifyEvery), 0
		}
		w.read(f, func() {
			w.scanProcess(f, now)
			w.countRefused(f, now)
		})
	}
	for key := range w.processes {
		if !seen[key] {
			delete(w.processes, key)
		}
	}
}

// identify asks who the processes are that nobody has asked for, or long ago.
func (w *Watcher) identify(list []Process) map[uint64]Identity {
	var due []Process
	w.mu.Lock()
	now := w.opts.Now()
	for _, p := range list {
		if f := w.processes[p.Key()]; f == nil || now >= f.identifyAt {
			due = append(due, p)
		}
	}
	w.mu.Unlock()
	who := make(map[uint64]Identity, len(due))
	for _, p := range due { // which may take its time: without the lock
		who[p.Key()] = w.opts.Identify(p.PID())
	}
	return who
}

// read calls fn if the maps of a process are still there, and what they should be. Requires
// w.mu.
func (w *Watcher) read(f *followed, fn func()) {
	if f.version != w.version {
		w.applyRules(f)
	}
	f.process.Read(func(m *Maps) {
		if f.use(m) {
			fn()
		}
		f.Maps = nil
	})
}

// Slow looks at one token at once: its program says that it has ended, and took longer than
// the threshold of its process. Nothing else that the program says is believed. Of a process
// that no scan has seen yet, the next one looks.
func (w *Watcher) Slow(process uint64, token uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.processes[process]
	if f == nil {
		return
	}
	now := w.opts.Now()
	if !f.allow(now) {
		w.counts.Limited++
		return
	}
	w.read(f, func() { w.look(f, token, now) })
}

// Counts returns the counters, and how often is scanned now.
func (w *Watcher) Counts() (c Counts, every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts, w.every
}
