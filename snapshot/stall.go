package snapshot

import (
	"sync"
	"time"
)

// stallAfter is when an operation on the disk counts as stalled. Nothing that the
// store does in one step takes so long on a disk that works.
const stallAfter = 3 * time.Second

// busy knows what the store's thread is doing, and since when.
type busy struct {
	mu    sync.Mutex
	what  string
	since time.Time // zero: nothing
}

func (b *busy) begin(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.since = what, time.Now()
}

func (b *busy) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = time.Time{}
}

// step says what is being done now; the operation got that far.
func (b *busy) step(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since.IsZero() {
		b.what, b.since = what, time.Now()
	}
}

// now is what is being done, and for how long. "": nothing.
func (b *busy) now() (what string, duration time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return "", 0
	}
	return b.what, time.Since(b.since)
}

// progress tells that the operation under way got that far.
func (s *Store) progress(what string) { s.busy.step(what) }

// Stalled tells which operation the disk has not finished for stallAfter, and for
// how long; "": none.
func (s *Store) Stalled() (what string, duration time.Duration) {
	if what, duration = s.busy.now(); duration < stallAfter {
		return "", 0
	}
	return what, duration
}
