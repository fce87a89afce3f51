// Package fair shares a few workers among the processes and users that cause
// the work, so that whoever causes much, or what takes long, delays himself.
//
// Items are queued by process, processes by user. Users take turns, and within
// a user its processes do; the items of one process are worked on in their
// order, one at a time. A user may occupy another worker only while it
// occupies fewer than are free: of 8 workers the first user gets 4 at most, the
// second 2, and there is one for whoever comes next. Space is shared by the
// same rule. A process whose last item took long is slow: slow ones together
// occupy half of the workers at most, so that their number does not matter
// either, once they are known.
package fair

import (
	"sync"
	"time"
)

// Options bound a Queue. Zero values are the defaults.
type Options struct {
	Workers  int           // that call Next; default 8
	Capacity int           // items that wait, all together; default 4096
	Slow     time.Duration // a process is slow if its last item took that long; default 50ms
	MaxSlow  int           // slow processes that are remembered; default 1024
}

// Owner is who causes an item.
type Owner struct {
	User    int
	Process int
}

// Queue hands out items fairly. Its methods may be called from any goroutine.
type Queue[T any] struct {
	opts Options

	mu      sync.Mutex
	change  *sync.Cond
	closed  bool
	queued  int
	busy    int // workers
	slowly  int // of these, with an item of a slow process
	users   map[int]*user[T]
	lanes   [2]lane[T]
	slow    map[Owner]struct{}
	slowest []Owner // in the order in which they became slow
}

const (
	fastLane = iota
	slowLane
)

// lane holds the users that have a process whose next item may be taken.
type lane[T any] struct{ users []*user[T] }

type user[T any] struct {
	id        int
	queued    int
	busy      int
	processes map[int]*process[T]
	ready     [2][]*process[T] // by lane; none has an item in work
}

type process[T any] struct {
	owner Owner
	user  *user[T]
	items []T
	busy  bool
}

// New makes an empty queue. A nil opts means defaults.
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

// Push queues an item, and tells whether there was room for one more of its
// owner. It does not block. After Close there is none.
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
	// Each may have as much as he leaves free.
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

// readyLocked lets a process have its turn, behind the others of its user.
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

// Task is an item that is being worked on.
type Task[T any] struct {
	Item  T
	queue *Queue[T]
	of    *process[T]
	slow  bool
}

// Next waits for the next item. False: the queue is closed, and empty. Every
// task must be given back by its Done, or its process has no other turn.
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

// takeLocked takes the item whose turn it is, if one may be worked on now.
func (q *Queue[T]) takeLocked() (Task[T], bool) {
	if q.slowly == 0 { // the slow ones are not forgotten
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
	for i, u := range l.users { // at most as many as there are workers are passed over
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

// Done gives the worker back, and says how long the item took. It may be called once.
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

// Close lets Push refuse and, once nothing is left, Next end.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Broadcast()
}

// Len is how many items wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued
}
