// Package guard keeps a panic that outside data causes from ending the daemon:
// it costs that piece of data, is counted, and is logged with its stack.
//
// Guard the smallest piece of work that one piece of outside data causes: one
// sample, one outlier, one request, one snapshot, one turn of a loop. What was
// half done when it panicked must be dropped by the caller; locks must be
// released by defer.
//
//	err := g.Do(guard.Naming, func() error { return name(o) })
//
// What Go cannot recover from still ends the process: concurrent map writes, a
// stack that outgrows its limit, memory that is not there.
package guard

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Place identifies what was being done. The set is fixed, as each has a counter.
type Place uint8

// Places, in the order of Counts. Add new ones before places, and to names.
const (
	Decode       Place = iota // a sample from the kernel side
	Naming                    // identity and symbols of an outlier
	Publish                   // passing an outlier to readers and actions
	Snapshot                  // collecting or writing a snapshot
	Explain                   // explaining a snapshot
	TraceNames                // looking up the references of a trace
	Action                    // starting an action or handling its result
	Request                   // a request on the socket
	Reload                    // loading and applying rules
	Housekeeping              // an iteration of a periodic loop
	Helper                    // a message of a helper process
	Span                      // a span message
	Store                     // listing, verifying or removing snapshots
	Scrape                    // collecting metrics
	Trigger                   // an event of a trigger's source
	Upload                    // packing a snapshot, or a turn of the loop that does
	Activities                // a scan of the activities of all processes

	places
)

var names = [places]string{
	"decode", "naming", "publish", "snapshot", "explain", "trace_names", "action", "request",
	"reload", "housekeeping", "helper", "span", "store", "scrape", "trigger", "upload", "activities",
}

// String returns the name used in status and logs.
func (p Place) String() string {
	if p >= places {
		return "unknown"
	}
	return names[p]
}

// PanicError is the error returned for a panic.
type PanicError struct {
	Place Place
	Value any    // argument of panic
	Stack []byte // of the panicking goroutine
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic in %s: %v", e.Place, e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// perPlace limits logged stacks to one per place and period.
const perPlace = time.Minute

// Guard counts and logs panics. Its methods may be called concurrently, also on nil,
// which recovers panics without counting or logging them.
type Guard struct {
	log    *zap.Logger
	now    func() time.Time
	counts [places]atomic.Uint64

	mu     sync.Mutex
	logged [places]time.Time
	silent [places]uint64 // not logged since then
}

// New returns a guard that logs to log; nil: count only.
func New(log *zap.Logger) *Guard {
	log = cmp.Or(log, zap.NewNop())
	return &Guard{log: log, now: time.Now}
}

// Do runs fn and returns its error, or a *PanicError if it panics. Goroutines started
// by fn are not covered.
func (g *Guard) Do(p Place, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = g.caught(p, v)
		}
	}()
	return fn()
}

// Mapped is Do for work on memory-mapped files: reading a file truncated meanwhile
// panics instead of killing the daemon with SIGBUS.
func (g *Guard) Mapped(p Place, fn func() error) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // setting of this goroutine
	return g.Do(p, fn)
}

func (g *Guard) caught(p Place, v any) *PanicError {
	e := &PanicError{Place: p, Value: v, Stack: debug.Stack()}
	if g == nil || p >= places {
		return e
	}
	g.counts[p].Add(1)
	g.mu.Lock()
	now := g.now()
	last := g.logged[p]
	if !last.IsZero() && now.Sub(last) < perPlace {
		g.silent[p]++
		g.mu.Unlock()
		return e
	}
	silent := g.silent[p]
	g.logged[p], g.silent[p] = now, 0
	g.mu.Unlock()
	g.log.Error("recovered from a panic: please report it",
		zap.Stringer("place", p), zap.Any("panic", fmt.Sprint(v)), zap.Uint64("not_logged_since", silent), zap.ByteString("panic_stack", e.Stack))
	return e
}

// Count is the number of panics of a place.
type Count struct {
	Place string
	Count uint64
}

// Counts lists all places, including those without panics.
func (g *Guard) Counts() []Count {
	list := make([]Count, places)
	for p := range places {
		list[p].Place = p.String()
		if g != nil {
			list[p].Count = g.counts[p].Load()
		}
	}
	return list
}
