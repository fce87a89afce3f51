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
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Place names what was being done. The set is fixed, so that counters are.
type Place uint8

// Places, in the order of Counts. A new one goes before places, with its name in names.
const (
	Decode       Place = iota // one sample from the kernel side
	Naming                    // identity and symbols of one outlier
	Publish                   // handing one outlier to readers and actions
	Snapshot                  // collecting or writing one snapshot
	Explain                   // explaining one snapshot
	TraceNames                // what the numbers in one trace stand for
	Action                    // starting an action, or noting its result
	Request                   // one request on the socket
	Reload                    // reading and applying rules
	Housekeeping              // one turn of a periodic loop
	Helper                    // one answer of the helper process
	Span                      // one message about a span
	Store                     // listing, verifying or removing snapshots

	places
)

var names = [places]string{
	"decode", "naming", "publish", "snapshot", "explain", "trace_names", "action", "request",
	"reload", "housekeeping", "helper", "span", "store",
}

// String is the place's name in status and log.
func (p Place) String() string {
	if p >= places {
		return "unknown"
	}
	return names[p]
}

// PanicError is what Do makes of a panic.
type PanicError struct {
	Place Place
	Value any    // what was panicked with
	Stack []byte // of the goroutine that did
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic in %s: %v", e.Place, e.Value) }

// Unwrap returns what was panicked with, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// perPlace is how often a stack of one place is logged.
const perPlace = time.Minute

// Guard counts and logs panics. Its methods may be called from any goroutine,
// also on nil: panics are then recovered, but neither counted nor logged.
type Guard struct {
	log    *zap.Logger
	now    func() time.Time
	counts [places]atomic.Uint64

	mu     sync.Mutex
	logged [places]time.Time
	silent [places]uint64 // since then
}

// New returns a guard that logs there; nil: it only counts.
func New(log *zap.Logger) *Guard {
	if log == nil {
		log = zap.NewNop()
	}
	return &Guard{log: log, now: time.Now}
}

// Do runs fn and returns its error, or a *PanicError if it panics. It does not
// cover goroutines that fn starts: those call Do themselves.
func (g *Guard) Do(p Place, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = g.caught(p, v)
		}
	}()
	return fn()
}

// Mapped is Do for work that reads memory-mapped files: a file that is
// truncated meanwhile is a panic here, not a SIGBUS that ends the daemon.
func (g *Guard) Mapped(p Place, fn func() error) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of this goroutine
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
	g.log.Error("a panic was caught, and cost what was being worked on: please report it",
		zap.Stringer("place", p), zap.Any("panic", fmt.Sprint(v)), zap.Uint64("not_logged_since", silent), zap.ByteString("panic_stack", e.Stack))
	return e
}

// Count is how many panics a place has had.
type Count struct {
	Place string
	Count uint64
}

// Counts lists every place, also those without a panic.
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
