package watch

import (
	"sync/atomic"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Use is how much the processes use of what they have, as of the last look at them.
type Use struct {
	LiveTokens int
	Threads    int // that have a slot
}

// Use returns how much is used now.
func (w *Watcher) Use() (u Use) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.processes {
		u.Threads += f.slots
		for i := range f.elements {
			if f.elements[i].live != nil {
				u.LiveTokens++
			}
		}
	}
	return u
}

// refusals follows a counter that a process writes.
type refusals struct {
	last, at uint64
}

// passed is by how much the counter has grown. Whatever the process writes, that is at most one
// in a nanosecond: the sums of all stay what they are.
func (r *refusals) passed(n, now uint64) (grown uint64) {
	if n > r.last {
		grown = min(n-r.last, now-min(r.at, now))
	}
	r.last, r.at = n, now
	return grown
}

// countRefused adds what the process could not have. Requires w.mu.
func (w *Watcher) countRefused(f *followed, now uint64) {
	client := sharedAt[abi.ActivityClient](f.Maps, 0)
	w.counts.TokensRefused += f.refused[0].passed(atomic.LoadUint64(&client.TokensRefused), now)
	w.counts.ThreadsRefused += f.refused[1].passed(atomic.LoadUint64(&client.ThreadsRefused), now)
}
