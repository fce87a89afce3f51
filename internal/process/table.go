// Package process identifies tasks: command line, cgroup and container. Processes may
// exit, have their pid reused, or block readers; no call takes longer than
// Options.Timeout or returns another process's identity.
package process

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/tailcam/tailcam/internal/process/within"
)

// Options configures a Table. Zero values mean defaults.
type Options struct {
	MaxEntries int           // cached processes, and cached cgroups; default 8192 each
	TTL        time.Duration // lifetime of a cached identity; default 10s
	Keep       time.Duration // how much longer that of a process that has exited is kept; default 5m
	Timeout    time.Duration // of one read; default 1s
	Proc       string        // mount point of procfs; default /proc
	// Cmdline reads the command line of the process that started at start, in clock
	// ticks since boot, with NULs after arguments; nil: read it in this process, which
	// may hang.
	Cmdline func(pid int, start uint64) (string, error)
	// Cmdlines reads several at once, which is faster on a busy machine. Cmdline is
	// used for those it leaves out. May be nil.
	Cmdlines func(of []Started) map[Started]string
	Thread   func() // called first in each goroutine that reads about many tasks; may be nil
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.MaxEntries = cmp.Or(out.MaxEntries, 8192)
	out.TTL = cmp.Or(out.TTL, 10*time.Second)
	out.Keep = cmp.Or(out.Keep, 5*time.Minute)
	out.Timeout = cmp.Or(out.Timeout, time.Second)
	out.Proc = cmp.Or(out.Proc, "/proc")
	return out
}

// Started identifies a process by pid and start time, in clock ticks since boot.
type Started struct {
	PID   int
	Start uint64
}

// Identity identifies a process. All text is printable.
type Identity struct {
	Cmdline   string // arguments joined by spaces, at most 4 KiB; "" for kernel threads
	Title     string // what the process calls itself, see title; "": as its first thread is named
	Cgroup    string // cgroup v2 path; "/" is the root
	Container string // id or name from the cgroup path; "": none
	V1Cgroups
}

// V1Cgroups are those of cgroup v1 by what they limit: CPU time, memory, block I/O; "": none.
type V1Cgroups struct {
	CPUCgroup, MemoryCgroup, IOCgroup string
}

// Table caches identities and cgroup paths. It is safe for concurrent use.
type Table struct {
	opts       Options
	identities *xsync.MapOf[int, remembered]
	paths      *xsync.MapOf[uint64, string] // cgroup ids are not reused
	gate       *within.Gate[gateKey]
	timeouts   atomic.Uint64
	trimming   sync.Mutex

	hierarchy hierarchy
	diag      diag
}

type remembered struct {
	life  life
	who   Identity
	until time.Time // then it is read again, if the process still exists
	seen  uint64    // last seen, in nanoseconds of CLOCK_MONOTONIC
}

// life distinguishes programs that successively run under one pid.
type life struct {
	start  uint64 // clock ticks since boot
	comm   string // usually changed by exec
	kernel bool   // kernel thread
}

type gateKey struct {
	pid  int
	what string
}

// concurrent bounds the reads that run, or hang, at once.
const concurrent = 8

// New returns a table. It reads nothing yet. opts may be nil.
func New(opts *Options) *Table {
	o := opts.withDefaults()
	return &Table{
		opts:       o,
		identities: xsync.NewMapOf[int, remembered](),
		paths:      xsync.NewMapOf[uint64, string](),
		gate:       within.NewGate[gateKey](concurrent),
		hierarchy:  hierarchy{proc: o.Proc},
	}
}

// Close closes the cgroup file system. The table must not be used afterwards.
func (t *Table) Close() error { return t.hierarchy.close() }

// Panics returns the number of reads that panicked.
func (t *Table) Panics() uint64 { return t.gate.Panics() }

// Timeouts returns the number of reads that timed out.
func (t *Table) Timeouts() uint64 { return t.timeouts.Load() }

// trimIdentities bounds the number of cached identities, dropping expired ones first.
func (t *Table) trimIdentities() {
	if t.identities.Size() <= t.opts.MaxEntries || !t.trimming.TryLock() {
		return
	}
	defer t.trimming.Unlock()
	now := time.Now()
	t.identities.Range(func(pid int, r remembered) bool {
		if now.After(r.until) {
			t.identities.Delete(pid)
		}
		return true
	})
	trim(t.identities, t.opts.MaxEntries)
}

// trim drops arbitrary entries, down to three quarters, if there are too many.
func trim[K comparable, V any](m *xsync.MapOf[K, V], limit int) {
	if m.Size() <= limit {
		return
	}
	drop := m.Size() - limit*3/4
	m.Range(func(k K, _ V) bool {
		m.Delete(k)
		drop--
		return drop > 0
	})
}
