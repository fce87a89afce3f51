// Package fair shares workers among the processes and users that cause work, so that
// heavy users delay only themselves.
//
// Items are queued by process, and processes by user. Users take turns, and the
// processes of a user do too; the items of a process are handled in order, one at a
// time. A user may occupy another worker only while it occupies fewer than are free: of
// 8 workers the first user gets at most 4 and the second 2, which leaves one for the
// next. Queue space is shared the same way. A process is slow if its last item took
// long. Slow processes together occupy at most half of the workers, however many there
// are.
package fair

import (
	"sync"
	"time"
)

// Options configures a Queue. Zero values mean defaults.
type Options struct {
	Workers  int           // concurrent callers of Next; default 8
	Capacity int           // maximum queued items; default 4096
	Slow     time.Duration // processes whose last item took this long are slow; default 50ms
	MaxSlow  int           // slow processes remembered; default 1024
}

// Owner is the cause of an item.
type Owner struct {
	User    int
	Process int
}

// Queue is a fair queue. Its methods may be called concurrently.
type Queue[T any] struct {
	opts Options

	mu      sync.Mutex
	change  *sync.Cond
	closed  bool
	queued  int
	busy    int // workers in use
	slowly  int // of these, with items of slow processes
	users   map[int]*user[T]
	lanes   [2]lane[T]
	slow    map[Owner]struct{}
	slowest []Owner // in the order of becoming slow
}

const (
	fastLane = iota
	slowLane
)

// lane lists users with a process whose next item may be taken.
type lane[T any] struct{ users []*user[T] }

type user[T any] struct {
	id        int
	queued    int
	busy      int
	processes map[int]*process[T]
	ready     [2][]*process[T] // by lane; excludes processes in work
}

type process[T any] struct {
	owner Owner
	user  *user[T]
	items []T
	busy  bool
}

// New returns an empty queue. opts may be nil.
func New[T any](opts *Options) *Queue[T] {
	q := &Queue[T]{users: map[int]*user[T]{}, slow: map[Owner]struct{}{}}
	if opts != nil {
		q.opts = *opts
	}
	if q.opts.Workers <= 0 {
		q.opts.Workers = 8
	}
	if q.opts.Capacity <= 0 {
		q.opts.Capacity = 4096
	}
	if q.opts.Slow <= 0 {
		q.opts.Slow = 50 * time.Millisecond
	}
	if q.opts.MaxSlow <= 0 {
		q.opts.MaxSlow = 1024
	}
	q.change = sync.NewCond(&q.mu)
	return q
}

// Push queues an item without blocking. It returns false if its owner has no more room,
// or the queue is closed.
func (q *Queue[T]) Push(of Owner, item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	u := q.users[of.User]
	if u == nil {
		u = &user[T]{id: of.User, processes: map[int]*process[T]{}}
	}
	p := u.processes[of.Process]
	if p == nil {
		p = &process[T]{owner: of, user: u}
	}
	// Nobody may use more than what is left free.
	free := q.opts.Capacity - q.queued
	if u.queued >= free || len(p.items) >= max(free-u.queued, 1) {
		return false
	}
	q.users[u.id], u.processes[of.Process] = u, p
	p.items = append(p.items, item)
	q.queued++
	u.queued++
	if !p.busy && len(p.items) == 1 {
		q.readyLocked(p)
	}
	q.change.Signal()
	return true
}

// readyLocked queues a process behind the others of its user.
func (q *Queue[T]) readyLocked(p *process[T]) {
	at := fastLane
	if _, slow := q.slow[p.owner]; slow {
		at = slowLane
	}
	u := p.user
	u.ready[at] = append(u.ready[at], p)
	if len(u.ready[at]) == 1 {
		q.lanes[at].users = append(q.lanes[at].users, u)
	}
}

// Task is an item taken from the queue.
type Task[T any] struct {
	Item  T
	queue *Queue[T]
	of    *process[T]
	slow  bool
}

// Next waits for the next item; false: the queue is closed and empty. Call Done on each
// task, or its process is blocked for ever.
func (q *Queue[T]) Next() (Task[T], bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if t, ok := q.takeLocked(); ok {
			return t, true
		}
		if q.closed && q.queued == 0 {
			return Task[T]{}, false
		}
		q.change.Wait()
	}
}

// takeLocked takes the next item, if a worker may be used for it.
func (q *Queue[T]) takeLocked() (Task[T], bool) {
	if q.slowly == 0 { // prevent starvation of slow processes
		if t, ok := q.takeOfLocked(slowLane); ok {
			return t, true
		}
	}
	if t, ok := q.takeOfLocked(fastLane); ok {
		return t, true
	}
	if q.slowly < max(q.opts.Workers/2, 1) {
		return q.takeOfLocked(slowLane)
	}
	return Task[T]{}, false
}

func (q *Queue[T]) takeOfLocked(at int) (Task[T], bool) {
	l := &q.lanes[at]
	free := q.opts.Workers - q.busy
	for i, u := range l.users { // skips at most as many users as there are workers
		if u.busy >= free && u.busy > 0 || free <= 0 {
			continue
		}
		l.users = append(l.users[:i], l.users[i+1:]...)
		p := u.ready[at][0]
		u.ready[at] = u.ready[at][1:]
		if len(u.ready[at]) > 0 {
			l.users = append(l.users, u)
		}
		t := Task[T]{Item: p.items[0], queue: q, of: p, slow: at == slowLane}
		var none T
		p.items[0] = none
		p.items = p.items[1:]
		p.busy = true
		u.queued--
		u.busy++
		q.queued--
		q.busy++
		if t.slow {
			q.slowly++
		}
		return t, true
	}
	return Task[T]{}, false
}

// Done returns the worker and reports how long the item took. Call it once.
func (t *Task[T]) Done(took time.Duration) {
	q, p := t.queue, t.of
	q.mu.Lock()
	defer q.mu.Unlock()
	p.busy = false
	p.user.busy--
	q.busy--
	if t.slow {
		q.slowly--
	}
	q.judgeLocked(p.owner, took >= q.opts.Slow)
	switch {
	case len(p.items) > 0:
		q.readyLocked(p)
	default:
		delete(p.user.processes, p.owner.Process)
		if len(p.user.processes) == 0 {
			delete(q.users, p.user.id)
		}
	}
	q.change.Broadcast()
}

func (q *Queue[T]) judgeLocked(of Owner, slow bool) {
	_, was := q.slow[of]
	switch {
	case slow && !was:
		q.slow[of] = struct{}{}
		q.slowest = append(q.slowest, of)
		for len(q.slowest) > q.opts.MaxSlow {
			delete(q.slow, q.slowest[0])
			q.slowest = q.slowest[1:]
		}
	case !slow && was:
		delete(q.slow, of)
		for i := range q.slowest {
			if q.slowest[i] == of {
				q.slowest = append(q.slowest[:i], q.slowest[i+1:]...)
				break
			}
		}
	}
}

// Close makes Push fail, and Next return false once the queue is empty.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Broadcast()
}

// Len returns the number of queued items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued
}
