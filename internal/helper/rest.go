package helper

import (
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// restAfter is how long a helper has nothing to do before it rests, at least; at most twice that.
const restAfter = 20 * time.Second

// rest has a helper without work do nothing at all: it gives back what its work took, once.
// Go would collect garbage every two minutes for ever, in all helpers at the same moment, as
// they have worked together; on a slow machine others wait for a CPU then. The moment of
// each is its own here.
type rest struct {
	after   time.Duration
	working func() bool // in the background

	mu      sync.Mutex
	timer   *time.Timer
	last    time.Time // something was asked for
	resting bool
	percent int // of the collector, while the helper rests
}

// newRest begins to wait. working says whether there is work that nobody has asked for; nil: never.
func newRest(after time.Duration, working func() bool) *rest {
	r := &rest{after: after + rand.N(after), working: working, last: time.Now()} //nolint:gosec // needs to differ, not to be secret
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.after, r.begin)
	return r
}

// work is to be called before something is done.
func (r *rest) work() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	if r.resting {
		debug.SetGCPercent(r.percent)
		r.resting = false
	}
	r.timer.Reset(r.after)
}

// begin rests, unless there is work by now.
func (r *rest) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.after - time.Since(r.last)
	switch {
	case r.resting:
	case left > 0:
		r.timer.Reset(left)
	case r.working != nil && r.working():
		r.timer.Reset(r.after)
	default:
		debug.FreeOSMemory()
		r.percent = debug.SetGCPercent(-1) // nothing is allocated until work comes
		r.resting = true
	}
}
