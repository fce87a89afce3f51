package api

import (
	"os"
	"sync"
	"sync/atomic"
)

// quota shares a number of slots among the users of the socket. A user gets another
// slot only while it has fewer than are free, so that one is left for the next user:
// the first user gets at most half of them, the second a quarter. Some slots are
// reserved for root and the daemon's own user, who may also use the others. Its
// methods may be called from any goroutine.
type quota struct {
	total, reserved int
	refused         atomic.Uint64

	mu   sync.Mutex
	used int            // by others than root
	root int            // by root
	by   map[uint32]int // by user, others than root
}

func newQuota(total, reserved int) *quota {
	return &quota{total: total, reserved: reserved, by: map[uint32]int{}}
}

func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// take reports whether the user gets a slot; release returns it.
func (q *quota) take(uid uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := q.total - q.used - q.root
	if trusted(uid) {
		if free <= 0 {
			q.refused.Add(1)
			return false
		}
		q.root++
		return true
	}
	if free = min(free, q.total-q.reserved-q.used); q.by[uid] >= free {
		q.refused.Add(1)
		return false
	}
	q.by[uid]++
	q.used++
	return true
}

func (q *quota) release(uid uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if trusted(uid) {
		q.root--
		return
	}
	q.used--
	if q.by[uid]--; q.by[uid] == 0 {
		delete(q.by, uid)
	}
}
