// Package within runs calls with a time limit that may never return.
//
// Reading /proc files of a task takes locks that a stuck task may hold, and reading
// files it has mapped may hang with a disk or file system: just when tailcam is needed.
// Such a read cannot be canceled, so it is abandoned, and the number of abandoned calls
// is bounded.
package within

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrTimeout means that the call did not return in time. It continues and occupies
	// a slot until it returns.
	ErrTimeout = errors.New("no answer in time")
	// ErrStuck means that nothing was started: an earlier call with the same key has
	// not returned, or abandoned calls occupy all slots.
	ErrStuck = errors.New("an earlier call has not returned yet")
)

// Gate bounds the number of concurrent calls, and stops calls of a key (such as a
// process) after one was abandoned. It is safe for concurrent use.
type Gate[K comparable] struct {
	slots chan struct{}

	panics atomic.Uint64

	mu    sync.Mutex
	stuck map[K]int
	total int
}

// NewGate returns a gate for up to slots concurrent calls.
func NewGate[K comparable](slots int) *Gate[K] {
	return &Gate[K]{slots: make(chan struct{}, max(slots, 1)), stuck: make(map[K]int)}
}

// Panicked is the value Do panics with if f panics.
type Panicked struct {
	Value any
	Stack []byte // of f
}

// Error implements error.
func (p *Panicked) Error() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// Do returns the result of f, or ErrTimeout or ErrStuck after at most limit. After
// ErrTimeout f is still running, so it must own everything it writes to. If f panics,
// Do panics with *Panicked; after ErrTimeout that is only counted.
func Do[K comparable, T any](g *Gate[K], key K, limit time.Duration, f func() T) (T, error) {
	var zero T
	if g.refuses(key) {
		return zero, ErrStuck
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case g.slots <- struct{}{}:
	case <-timer.C:
		return zero, ErrTimeout
	}

	call := &call{}
	result := make(chan T, 1)
	panicked := make(chan *Panicked, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				g.panics.Add(1)
				panicked <- &Panicked{Value: v, Stack: debug.Stack()}
			}
			g.finish(key, call)
			<-g.slots
		}()
		result <- f()
	}()
	select {
	case v := <-result:
		return v, nil
	case p := <-panicked:
		panic(p)
	case <-timer.C:
		g.abandon(key, call)
		return zero, ErrTimeout
	}
}

// Stuck returns the number of abandoned calls that have not returned.
func (g *Gate[K]) Stuck() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// Panics returns the number of calls that panicked, abandoned ones included.
func (g *Gate[K]) Panics() uint64 { return g.panics.Load() }

type call struct{ abandoned, finished bool } // guarded by Gate.mu

func (g *Gate[K]) refuses(key K) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stuck[key] > 0 || g.total >= cap(g.slots)
}

func (g *Gate[K]) abandon(key K, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.finished {
		return
	}
	c.abandoned = true
	g.stuck[key]++
	g.total++
}

func (g *Gate[K]) finish(key K, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.finished = true
	if !c.abandoned {
		return
	}
	g.total--
	if g.stuck[key]--; g.stuck[key] == 0 {
		delete(g.stuck, key)
	}
}
