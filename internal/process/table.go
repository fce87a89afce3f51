// Package process tells who a task is: its command line, its cgroup and its
// container. Tasks may exit, be replaced under the same pid, or be stuck so
// that reading about them blocks; none of that reaches the caller as a delay
// beyond Options.Timeout or as another task's identity.
package process

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/tailcam/tailcam/internal/process/within"
)

// Options tune a Table. The zero value of a field is its default.
type Options struct {
	MaxEntries int           // processes, and cgroups, remembered; default 8192 each
	TTL        time.Duration // how long an identity is believed; default 10s
	Timeout    time.Duration // of one read about a process; default 1s
	Proc       string        // where procfs is mounted; default /proc
	// Cmdline reads the command line of the process that began at start, in
	// clock ticks after boot; nil: in the calling process, which may hang then.
	Cmdline func(pid int, start uint64) (string, error)
	// Cmdlines reads several at once, as each takes a while on a machine that has too
	// much to do. Those that it leaves out are read by Cmdline. Nil: all are.
	Cmdlines func(of []Started) map[Started]string
	Thread   func() // called first in each goroutine that reads about tasks in a row; nil: nothing
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.MaxEntries = cmp.Or(out.MaxEntries, 8192)
	out.TTL = cmp.Or(out.TTL, 10*time.Second)
	out.Timeout = cmp.Or(out.Timeout, time.Second)
	out.Proc = cmp.Or(out.Proc, "/proc")
	return out
}

// Started is a process by its id and when it began, in clock ticks after boot.
type Started struct {
	PID   int
	Start uint64
}

// Identity says who a process is. All of it is safe to print.
type Identity struct {
	Cmdline   string // arguments joined by spaces, at most 4 KiB; empty for kernel threads
	Cgroup    string // cgroup v2 path; "/" is the root
	Container string // id or name found in the cgroup path; empty: none
}

// Table remembers identities and cgroup paths, within bounds. It is safe for
// concurrent use.
type Table struct {
	opts       Options
	identities *xsync.MapOf[int, remembered]
	paths      *xsync.MapOf[uint64, string] // cgroup ids are not used again
	gate       *within.Gate[gateKey]
	timeouts   atomic.Uint64
	trimming   sync.Mutex

	hierarchy hierarchy
}

type remembered struct {
	life  life
	who   Identity
	until time.Time
	seen  uint64 // nanoseconds of CLOCK_MONOTONIC: it was there then
}

// life tells apart the programs that run under one pid in the course of time.
type life struct {
	start  uint64 // clock ticks after boot
	comm   string // exec changes it, mostly
	kernel bool   // a kernel thread
}

type gateKey struct {
	pid  int
	what string
}

// concurrent is how many reads about processes may run, or hang, at once.
const concurrent = 8

// New makes a table. It reads nothing yet. A nil opts means defaults.
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

// Close releases the cgroup file system. The table must not be used any more.
func (t *Table) Close() error { return t.hierarchy.close() }

// Panics counts reads that have panicked, and were given up.
func (t *Table) Panics() uint64 { return t.gate.Panics() }

// Timeouts counts reads that were given up because a process did not answer.
func (t *Table) Timeouts() uint64 { return t.timeouts.Load() }

// trimIdentities keeps the number of identities within its bound: those whose
// time is up go first, then any.
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
