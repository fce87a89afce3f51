package snapshot

import (
	"sync"
	"time"
)

// stallTimeout is when an operation on the disk counts as stalled. Nothing that the
// store does in one step takes so long on a disk that works.
const stallTimeout = 3 * time.Second

// operation knows what the store's thread is doing, and since when.
type operation struct {
	mu    sync.Mutex
	what  string
	since time.Time // zero: nothing
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

// advance says what is being done now; the operation got that far.
func (b *operation) advance(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since.IsZero() {
		b.what, b.since = what, time.Now()
	}
}

// current is what is being done, and for how long. "": nothing.
func (b *operation) current() (what string, duration time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return "", 0
	}
	return b.what, time.Since(b.since)
}

// setStep tells that the operation under way got that far.
func (s *Store) setStep(what string) { s.operation.advance(what) }

// Stalled tells which operation the disk has not finished for stallAfter, and for
// how long; "": none.
func (s *Store) Stalled() (what string, duration time.Duration) {
	if what, duration = s.operation.current(); duration < stallTimeout {
		return "", 0
	}
	return what, duration
}
