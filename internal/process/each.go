package process

import (
	"errors"
	"sync"
	"time"

	"github.com/tailcam/tailcam/internal/process/within"
)

// each reads about several tasks or processes, and returns what could be read, in order, as far as
// there is time until end. It reads in one goroutine, as switching between two takes longer than
// reading, and goes on in another one after what hangs. reader is called in each of them with the
// ids that it may read about; done when it will read no more.
func each[T any](t *Table, ids []int, what string, end time.Time, reader func(ids []int) (read func(i int) (T, error), done func())) (out []T) {
	for len(ids) > 0 && time.Now().Before(end) {
		b := &batch[T]{}
		_, err := within.Do(t.gate, gateKey{ids[0], what}, t.opts.Timeout, func() struct{} {
			if t.opts.Thread != nil {
				t.opts.Thread()
			}
			read, done := reader(ids)
			defer done()
			for i := range ids {
				if time.Now().After(end) {
					break
				}
				b.add(read(i))
			}
			return struct{}{}
		})
		done, found := b.progress()
		out = append(out, found...)
		if err != nil {
			if !errors.Is(err, within.ErrStuck) {
				t.timeouts.Add(1)
			}
			done++ // this one may hang
		}
		ids = ids[min(done, len(ids)):]
	}
	return out
}

// alone is a reader of each that reads about one after the other.
func alone[T any](read func(id int) (T, error)) func(ids []int) (func(i int) (T, error), func()) {
	return func(ids []int) (func(i int) (T, error), func()) {
		return func(i int) (T, error) { return read(ids[i]) }, func() {}
	}
}

// batch is what has been read.
type batch[T any] struct {
	mu    sync.Mutex
	done  int
	found []T
}

func (b *batch[T]) add(v T, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done++; err == nil {
		b.found = append(b.found, v)
	}
}

// progress returns of how many was read, and what was found.
func (b *batch[T]) progress() (int, []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done, b.found[:len(b.found):len(b.found)] // an abandoned goroutine may go on
}
