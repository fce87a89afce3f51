package helper

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	restAfter = 2 * time.Second // for which a helper has had nothing to do when it rests
	restEvery = time.Minute     // to rest takes a collection
)

// rest keeps a helper that has nothing to do from waking up: Go collects garbage every two
// minutes (forcegcperiod in runtime/proc.go) in each process that ever did, but not while
// that is off. So it does so once, gives the memory back, and has it off until there is
// something to do again. Its heap limit holds all the same.
type rest struct {
	mu      sync.Mutex
	tasks   int
	timer   *time.Timer
	resting bool
	percent int // of debug.SetGCPercent, while it does not rest
	last    time.Time
}

// work ends the rest until done is called.
func (r *rest) work() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks++
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.resting {
		r.resting = false
		debug.SetGCPercent(r.percent)
	}
	return r.done
}

func (r *rest) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks--
	switch {
	case r.tasks > 0:
	case r.timer == nil:
		r.timer = time.AfterFunc(restAfter, r.begin)
	default:
		r.timer.Reset(restAfter)
	}
}

// begin rests, if there still is nothing to do.
func (r *rest) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks > 0 || r.resting {
		return
	}
	if soon := restEvery - time.Since(r.last); soon > 0 && !r.last.IsZero() {
		r.timer.Reset(soon)
		return
	}
	r.last = time.Now()
	debug.FreeOSMemory()
	r.percent, r.resting = debug.SetGCPercent(-1), true
}
