// Package within runs calls that may never return.
//
// Reading another task's /proc files takes locks that the task may hold while
// it is stuck, and reading the files it has mapped goes to disks and file
// systems that may hang: exactly the moments tailcam exists for. Such a read
// cannot be cancelled, so it is left behind, and what is left behind is bounded.
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
	// ErrTimeout says that the call did not return in time. It goes on in the
	// background and keeps its slot until it returns.
	ErrTimeout = errors.New("no answer in time")
	// ErrStuck says that nothing was started, because an earlier call with the
	// same key has not returned yet, or because every slot is taken by such calls.
	ErrStuck = errors.New("an earlier call has not returned yet")
)

// Gate bounds how many calls run at once, and lets one key (such as a process)
// leave no more calls behind than were running when it got stuck.
// It is safe for concurrent use.
type Gate[K comparable] struct {
	slots chan struct{}

	panics atomic.Uint64

	mu    sync.Mutex
	stuck map[K]int
	total int
}

// NewGate makes a gate that runs up to slots calls at once.
func NewGate[K comparable](slots int) *Gate[K] {
	return &Gate[K]{slots: make(chan struct{}, max(slots, 1)), stuck: make(map[K]int)}
}

// Panicked is what Do panics with if f has panicked, in a goroutine of its own.
type Panicked struct {
	Value any
	Stack []byte // of f
}

// Error implements error.
func (p *Panicked) Error() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// Do returns what f returns, or ErrTimeout or ErrStuck after at most limit.
// After ErrTimeout f is still running: it must own everything that it writes.
// If f panics, so does Do, with *Panicked; after ErrTimeout that is only counted.
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

// Stuck counts the calls that were left behind and have not returned.
func (g *Gate[K]) Stuck() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// Panics counts the calls that have panicked, also those that were left behind.
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
