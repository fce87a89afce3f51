package helper

import (
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestRest: without work the collector is off, which has Go's periodic collections end; not
// while work goes on in the background; and the next request finds it as it was.
func TestRest(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	var busy atomic.Bool
	var asked atomic.Int64
	busy.Store(true)
	r := newRest(10*time.Millisecond, func() bool { asked.Add(1); return busy.Load() })
	resting := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.resting
	}
	for asked.Load() < 3 {
		assert.Assert(t, !resting())
		time.Sleep(time.Millisecond)
	}
	busy.Store(false)
	for range 3 {
		for !resting() {
			time.Sleep(time.Millisecond)
		}
		r.mu.Lock()
		assert.Equal(t, debug.SetGCPercent(-1), -1)
		r.mu.Unlock()
		r.work()
		r.mu.Lock()
		if !r.resting { // it may rest again by now
			percent := debug.SetGCPercent(100)
			assert.Equal(t, percent, 100)
		}
		r.mu.Unlock()
	}
	r.timer.Stop()
}
