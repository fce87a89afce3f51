package snapshot

import (
	"sync"
	"time"
)

// stallTimeout is the time after which a disk operation counts as stalled. No single
// step takes that long on a working disk.
const stallTimeout = 3 * time.Second

// operation is what the store's thread is doing. It is safe for concurrent use.
type operation struct {
	mu    sync.Mutex
	what  string
	since time.Time // zero: idle
}

func (b *operation) start(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.since = what, time.Now()
}

func (b *operation) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = time.Time{}
}

// advance sets the current step of the operation and restarts its clock.
func (b *operation) advance(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since.IsZero() {
		b.what, b.since = what, time.Now()
	}
}

// current returns the current step and its duration, "" if idle.
func (b *operation) current() (what string, duration time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return "", 0
	}
	return b.what, time.Since(b.since)
}

func (s *Store) setStep(what string) { s.operation.advance(what) }

// Stalled returns the disk operation that has made no progress for stallTimeout and its
// duration, "" if there is none. It may be called at any time.
func (s *Store) Stalled() (what string, duration time.Duration) {
	if what, duration = s.operation.current(); duration < stallTimeout {
		return "", 0
	}
	return what, duration
}
