package events

import (
	"sync"
	"time"
)

// Promise is something that the kernel side sends after an outlier. Its methods may be
// called from any goroutine.
type Promise[T any] struct {
	once sync.Once
	done chan struct{}

	mu    sync.Mutex // guards what follows
	value T
}

// NewPromise promises something.
func NewPromise[T any]() *Promise[T] { return &Promise[T]{done: make(chan struct{})} }

// IsKnown reports whether Wait would not wait.
func (p *Promise[T]) IsKnown() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Fill sets the value, which it keeps; the zero value: there is none. Only the first call
// counts.
func (p *Promise[T]) Fill(v T) {
	p.once.Do(func() {
		p.mu.Lock()
		p.value = v
		p.mu.Unlock()
		close(p.done)
	})
}

// Wait returns the value, or the zero value if it does not come in time. p may be nil.
func (p *Promise[T]) Wait(limit time.Duration) (v T) {
	if p == nil {
		return v
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.value
	case <-timer.C:
		return v
	}
}

// Forget drops the value, which may be large: Wait returns the zero value from here on. p may be nil.
func (p *Promise[T]) Forget() {
	if p == nil {
		return
	}
	var none T
	p.Fill(none)
	p.mu.Lock()
	p.value = none
	p.mu.Unlock()
}
