package otlp

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tailcam/tailcam/tracker/events"
)

// item is an outlier to be sent.
type item struct {
	*events.Outlier
	observed time.Time
}

// queue holds the outliers that wait for the collector, fairly shared by rules. Its
// methods may be called concurrently, and never wait.
type queue struct {
	capacity int
	wake     chan struct{} // signaled when there is something to take

	mu      sync.Mutex
	waiting map[string][]item // by rule; never empty
	total   int
	last    string // rule of the item that was taken last

	dropped *ruleCounts
}

func newQueue(capacity int, dropped *ruleCounts) *queue {
	return &queue{capacity: capacity, wake: make(chan struct{}, 1), waiting: map[string][]item{}, dropped: dropped}
}

// push adds an item. If there is no room, the oldest of the rule that has the most is
// dropped.
func (q *queue) push(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[it.Rule] = append(q.waiting[it.Rule], it)
	q.total++
	if q.total > q.capacity {
		most := it.Rule
		for rule, list := range q.waiting {
			if len(list) > len(q.waiting[most]) {
				most = rule
			}
		}
		q.popLocked(most)
		q.dropped.add(most, 1)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop takes the oldest item of the rule whose turn it is; ok: there is one.
func (q *queue) pop() (it item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.total == 0 {
		return item{}, false
	}
	rules := slices.Sorted(maps.Keys(q.waiting))
	next, found := slices.BinarySearch(rules, q.last)
	if found {
		next++
	}
	q.last = rules[next%len(rules)]
	return q.popLocked(q.last), true
}

func (q *queue) popLocked(rule string) item {
	list := q.waiting[rule]
	it := list[0]
	list[0] = item{}
	if len(list) == 1 {
		delete(q.waiting, rule)
	} else {
		q.waiting[rule] = list[1:]
	}
	q.total--
	return it
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
