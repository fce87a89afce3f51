package snapshot

import (
	"sync"
	"time"
)

// stallTimeout is the time after which a disk operation counts as stalled. No single
// step takes that long on a working disk.
const stallTimeout = 3 * time.Second

// operation is what the store's thread, or the writer, is doing. It is safe for
// concurrent use.
type operation struct {
	mu    sync.Mutex
	what  string
	since time.Time // zero: idle
	steps uint64    // begun so far
}

func (b *operation) start(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.since = what, time.Now()
	b.steps++
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
		b.steps++
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

// progress returns how many steps have begun, and the current one, "" if idle.
func (b *operation) progress() (steps uint64, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since.IsZero() {
		what = b.what
	}
	return b.steps, what
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

// Progress is how far the two loops of a Manager have come.
type Progress struct {
	Turns   uint64 // of the loop that reads the recorder: at least one a second
	Steps   uint64 // of the loop that writes, and of the disk
	Writing string // what the writer is at; empty: there is nothing to write
	// Explaining: the writer waits for Options.Explain.
	Explaining bool
	// Disk is what the store's thread asks of the disk; empty: nothing. The writer waits
	// for that, and a restart would wait for the same disk.
	Disk string
}

// Progress tells how far Run has come. It may be called at any time, and does not wait
// for what hangs.
func (m *Manager) Progress() Progress {
	p := Progress{Turns: m.turns.Load()}
	var disk uint64
	p.Steps, p.Writing = m.writing.progress()
	disk, p.Disk = m.opts.Store.operation.progress()
	p.Steps += disk
	p.Explaining = p.Writing == stepExplain
	return p
}

// stepExplain is the step of the writer in which it waits for Options.Explain.
const stepExplain = "explain"
