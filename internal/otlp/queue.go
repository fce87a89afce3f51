package otlp

import (
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// item is an outlier to be sent.
type item struct {
	*events.Outlier
	observed time.Time
}

// queue holds the outliers that wait in memory, fairly shared by rules. Its methods may be
// called concurrently, and never wait.
type queue struct {
	capacity int
	wake     chan struct{} // signaled when there is something to take

	mu    sync.Mutex
	turns turns[item]
	total int

	dropped *ruleCounts
}

func newQueue(capacity int, dropped *ruleCounts) *queue {
	return &queue{capacity: capacity, wake: make(chan struct{}, 1), dropped: dropped}
}

// push adds an item. If there is no room, the oldest of the rule that has the most is
// dropped.
func (q *queue) push(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns.add(it.Rule, it)
	q.total++
	if q.total > q.capacity {
		most, _ := q.turns.most(func(list []item) int64 { return int64(len(list)) })
		q.turns.oldest(most)
		q.total--
		q.dropped.add(most, 1)
	}
	signalOnce(q.wake)
}

// signalOnce wakes whoever waits, or will.
func signalOnce(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pop takes the oldest item of the rule whose turn it is; ok: there is one.
func (q *queue) pop() (it item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it, ok = q.turns.take(); ok {
		q.total--
	}
	return it, ok
}

// drop counts items that nobody takes any more.
func (q *queue) drop(list ...item) {
	for _, it := range list {
		q.dropped.add(it.Rule, 1)
	}
}

// dropAll empties the queue.
func (q *queue) dropAll() {
	for it, ok := q.pop(); ok; it, ok = q.pop() {
		q.drop(it)
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}
