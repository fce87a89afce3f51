// Package contexts finds the processes that publish the contexts of their threads
// (OpenTelemetry's OTEP 4947), so that the kernel side can read them.
package contexts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/pulse"
)

// Variable is the thread-local variable that points to a thread's context.
const Variable = "otel_thread_ctx_v1"

// Options configures a Finder. Find and Set are required.
type Options struct {
	// Find finds Variable in a process. It takes at most some seconds.
	Find func(pid int) (abi.ContextPlace, error)
	// Set tells the kernel side.
	Set  func(pid int, place *abi.ContextPlace) error
	Proc string      // mount point of procfs; default /proc
	Log  *zap.Logger // default: no log
}

// Limits of the search.
const (
	interval     = 5 * time.Second
	passTime     = time.Second // of one pass; the rest is for the next one
	again        = 10 * time.Second
	maxProcesses = 1 << 16
	maxAsked     = 256 // outliers without a context that wait
)

// schedule is when a process is looked at again: libraries may be loaded late, and an
// exec begins anew.
var schedule = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// Finder looks at all processes, at new ones first. Missing and Publishers may be called
// from any goroutine.
type Finder struct {
	opts       Options
	asked      chan int
	publishers atomic.Int64
	known      map[int]*known
}

// known is what was found out of a process.
type known struct {
	tries     int
	last      time.Time
	publishes bool
}

func (k *known) due() time.Time {
	if k.tries == 0 {
		return time.Time{}
	}
	return k.last.Add(schedule[min(k.tries, len(schedule))-1])
}

// New returns a finder, which looks at nothing before Run.
func New(opts *Options) *Finder {
	o := *opts
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.Log = cmp.Or(o.Log, zap.NewNop())
	return &Finder{opts: o, asked: make(chan int, maxAsked), known: map[int]*known{}}
}

// Run looks at the processes until ctx is done.
func (f *Finder) Run(ctx context.Context) error {
	for {
		if err := f.pass(ctx); err != nil {
			f.opts.Log.Warn("look for processes that publish contexts", zap.Error(err))
		}
		if !f.wait(ctx, pulse.After(interval)) {
			return nil
		}
	}
}

// wait looks at processes that are asked for, until the next pass; false: ctx is done.
func (f *Finder) wait(ctx context.Context, next <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-next:
			return true
		case pid := <-f.asked:
			if k := f.known[pid]; k == nil || time.Since(k.last) > again {
				f.look(pid)
			}
		}
	}
}

// Missing says that an outlier of a process has no context. It never blocks.
func (f *Finder) Missing(pid int) {
	select {
	case f.asked <- pid:
	default: // the next pass will come
	}
}

// Publishers returns how many processes are known to publish contexts.
func (f *Finder) Publishers() int { return int(f.publishers.Load()) }

// pass looks at the processes that are due.
func (f *Finder) pass(ctx context.Context) error {
	now := time.Now()
	pids, err := f.processes()
	if err != nil {
		return err
	}
	for pid, k := range f.known {
		if _, found := slices.BinarySearch(pids, pid); !found {
			f.count(k, false)
			delete(f.known, pid)
		}
	}
	due := slices.DeleteFunc(pids, func(pid int) bool {
		k := f.known[pid]
		return k != nil && now.Before(k.due())
	})
	slices.SortStableFunc(due, func(a, b int) int { return cmp.Compare(f.tries(a), f.tries(b)) })
	for _, pid := range due {
		if ctx.Err() != nil || time.Since(now) > passTime {
			break
		}
		f.look(pid)
	}
	return nil
}

func (f *Finder) tries(pid int) int {
	if k := f.known[pid]; k != nil {
		return k.tries
	}
	return 0
}

// processes lists them in ascending order.
func (f *Finder) processes() ([]int, error) {
	dir, err := os.Open(f.opts.Proc)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && len(pids) < maxProcesses {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// look looks at one process, and tells the kernel side.
func (f *Finder) look(pid int) {
	k := f.known[pid]
	if k == nil {
		k = &known{}
		if len(f.known) < maxProcesses {
			f.known[pid] = k
		}
	}
	k.tries++
	place, err := f.opts.Find(pid)
	if err == nil {
		err = f.opts.Set(pid, &place)
	}
	k.last = time.Now()
	f.count(k, err == nil)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	f.opts.Log.Debug("no contexts", zap.Int("pid", pid), zap.Error(err))
}

func (f *Finder) count(k *known, publishes bool) {
	switch {
	case publishes && !k.publishes:
		f.publishers.Add(1)
	case !publishes && k.publishes:
		f.publishers.Add(-1)
	}
	k.publishes = publishes
}
