// Package containers asks container runtimes for the names of containers: the CRI sockets
// of containerd and CRI-O, and the sockets of Docker and Podman. A runtime that hangs, lies
// or floods delays only what is asked of itself: each has a goroutine, a time limit, and a
// bounded queue, and Get never waits.
package containers

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"
)

// Container is what a runtime says of a container. All text is printable and bounded; any
// field but ID may be empty.
type Container struct {
	ID        string
	Runtime   string // containerd, cri-o, docker, podman
	Name      string
	Image     string // with its tag; its id where it has no name any more
	Pod       string
	Namespace string
	PodUID    string
	Labels    map[string]string // of Options.Labels, those of the pod before the container's; do not change it
}

// State says whether a container is known.
type State int

// States of a container.
const (
	Unknown State = iota // no runtime knows it, or none answers
	Asked                // the answer is on its way
	Known
)

// Options configures a Lookup. Zero values mean defaults.
type Options struct {
	Sockets    []Socket
	Labels     []string      // keys of labels to keep
	Timeout    time.Duration // of one question; default 1s
	Retry      time.Duration // until a container that was not found is asked for again; default 5s
	Keep       time.Duration // how long a container is remembered that nobody asks for; default 15m
	MaxEntries int           // remembered containers; default 4096
	Log        *zap.Logger   // of sockets that do not answer; nil: none
}

// Lookup remembers containers by id. It is safe for concurrent use. Ids are not used
// again, so what is known of one stays true when it is gone.
type Lookup struct {
	opts    Options
	sources []*source
	known   *xsync.MapOf[string, *entry]
	sweep   sync.Mutex
	stop    context.CancelFunc
	done    sync.WaitGroup

	refused    atomic.Uint64
	complained atomic.Bool // the log says that no runtime answers
}

// entry is a container that was asked for.
type entry struct {
	id       string
	used     atomic.Int64  // nanoseconds since the epoch
	answered chan struct{} // closed when all sources have answered, or one knew it

	mu    sync.Mutex
	left  int // sources that have not answered
	found *Container
	retry time.Time // once all have answered that they do not know it
}

// New returns a lookup; Close ends it. It connects when first asked.
func New(o *Options) *Lookup {
	l := &Lookup{opts: *o, known: xsync.NewMapOf[string, *entry]()}
	d := &l.opts
	d.Timeout = orDefault(d.Timeout, time.Second)
	d.Retry = orDefault(d.Retry, 5*time.Second)
	d.Keep = orDefault(d.Keep, 15*time.Minute)
	d.MaxEntries = orDefault(d.MaxEntries, 4096)
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	for _, s := range d.Sockets {
		src := newSource(s, d)
		l.sources = append(l.sources, src)
		l.done.Go(func() { src.serve(ctx) })
	}
	return l
}

func orDefault[T time.Duration | int](v, def T) T {
	if v > 0 {
		return v
	}
	return def
}

// Close ends the questions under way.
func (l *Lookup) Close() error {
	l.stop()
	l.done.Wait()
	return nil
}

// Get returns what is known of a container, and asks for it if nothing is. hint is its
// runtime, as far as its cgroup tells: only that one is asked. It never waits.
func (l *Lookup) Get(id, hint string) (Container, State) {
	e := l.entry(id, hint)
	if e == nil {
		return Container{ID: id, Runtime: hint}, Unknown
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.found != nil:
		return *e.found, Known
	case e.left > 0:
		return Container{ID: id, Runtime: hint}, Asked
	}
	l.complain(id, hint)
	return Container{ID: id, Runtime: hint}, Unknown
}

// Wait is Get, but waits for an answer that is on its way, until limit.
func (l *Lookup) Wait(id, hint string, limit time.Duration) (Container, State) {
	e := l.entry(id, hint)
	if e != nil {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		e.mu.Lock()
		answered := e.answered
		e.mu.Unlock()
		select {
		case <-answered:
		case <-timer.C:
		}
	}
	return l.Get(id, hint)
}

// Refused is how many questions were not asked as there were too many at once. They are
// asked again.
func (l *Lookup) Refused() uint64 { return l.refused.Load() }

// Missing reports whether a container was asked for of late that is not known.
func (l *Lookup) Missing() bool {
	missing, since := false, time.Now().Add(-4*l.opts.Retry).UnixNano()
	l.known.Range(func(_ string, e *entry) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		missing = e.found == nil && e.used.Load() > since
		return !missing
	})
	return missing
}

// entry finds the container, and asks if it is new, or it is time to ask again. nil: no
// runtime can know it, or there are too many questions.
func (l *Lookup) entry(id, hint string) *entry {
	if id == "" || len(id) > maxID || len(l.sources) == 0 {
		return nil
	}
	now := time.Now()
	e, ok := l.known.Load(id)
	if !ok {
		e, ok = l.known.LoadOrStore(id, &entry{id: id})
	}
	e.used.Store(now.UnixNano())
	if !ok {
		l.trim(now)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.found != nil || e.left > 0 || now.Before(e.retry) {
		return e
	}
	e.answered = make(chan struct{})
	for _, s := range l.sources {
		if !s.mayKnow(hint) {
			continue
		}
		if s.ask(question{e, hint}) {
			e.left++
		} else {
			l.refused.Add(1)
		}
	}
	if e.left == 0 {
		e.retry = now.Add(l.opts.Retry)
		close(e.answered)
	}
	return e
}

// trim drops containers that nobody has asked for, and if there are too many still, those
// for which that is longest ago.
func (l *Lookup) trim(now time.Time) {
	if l.known.Size() <= l.opts.MaxEntries || !l.sweep.TryLock() {
		return
	}
	defer l.sweep.Unlock()
	var used []int64
	l.known.Range(func(_ string, e *entry) bool {
		used = append(used, e.used.Load())
		return true
	})
	slices.Sort(used)
	oldest := now.Add(-l.opts.Keep).UnixNano()
	if n := len(used) - l.opts.MaxEntries*3/4; n > 0 && n < len(used) {
		oldest = max(oldest, used[n])
	}
	l.known.Range(func(id string, e *entry) bool {
		if e.used.Load() < oldest {
			l.known.Delete(id)
		}
		return true
	})
}

// answer notes what a source knows; nil: nothing.
func (e *entry) answer(c *Container, retry time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left--
	first := e.found == nil && c != nil
	if first {
		e.found = c
	}
	if e.left == 0 && e.found == nil {
		e.retry = time.Now().Add(retry)
	}
	if (first || e.left == 0 && e.found == nil) && !isClosed(e.answered) {
		close(e.answered)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
