package logs

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued is how many lines may wait for a stream.
const maxQueued = 1024

// queue hands lines to a goroutine that may block on writing them. put never blocks:
// what does not fit is counted, and so is what cannot be written. When lines can be
// written again, one tells how many were lost.
type queue[T any] struct {
	write   func(T) error
	notice  func(lost uint64) T
	waiting chan T
	lost    atomic.Uint64
	once    sync.Once
	stop    chan struct{} // closed: write what is queued, then end
	ended   chan struct{}
}

func newQueue[T any](write func(T) error, notice func(lost uint64) T) *queue[T] {
	q := &queue[T]{
		write: write, notice: notice, waiting: make(chan T, maxQueued),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go q.run()
	return q
}

func (q *queue[T]) put(line T) {
	select {
	case q.waiting <- line:
	default:
		q.lost.Add(1)
	}
}

func (q *queue[T]) lines() uint64 { return q.lost.Load() }

// close waits until the queue is empty, for no longer than limit.
func (q *queue[T]) close(limit time.Duration) {
	q.once.Do(func() { close(q.stop) })
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-q.ended:
	case <-timer.C:
	}
}

func (q *queue[T]) run() {
	defer close(q.ended)
	var told uint64
	one := func(line T) {
		if q.write(line) != nil {
			q.lost.Add(1)
			return
		}
		if n := q.lost.Load(); n > told && q.write(q.notice(n-told)) == nil {
			told = n
		}
	}
	for {
		select {
		case line := <-q.waiting:
			one(line)
			continue
		case <-q.stop:
		}
		for {
			select {
			case line := <-q.waiting:
				one(line)
			default:
				return
			}
		}
	}
}

func lostText(n uint64) string {
	return fmt.Sprintf("%d log lines were lost: they could not be written, or not fast enough", n)
}

// lineSyncer is the zapcore.WriteSyncer of a queue.
type lineSyncer struct{ q *queue[[]byte] }

// Write queues a copy of a line.
func (s lineSyncer) Write(line []byte) (int, error) {
	s.q.put(bytes.Clone(line))
	return len(line), nil
}

// Sync does nothing: whoever logs does not wait.
func (s lineSyncer) Sync() error { return nil }
