package provoke

import (
	"math"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Unseen has threads wake each other, and holds the switches that the history seems to lack
// against those that the kernel side has missed itself, which knows who got each CPU last.
func Unseen(t *testing.T, history *History) {
	history = history.with(t)
	history.Take()
	before, err := history.Kernel.Counters()
	assert.NilError(t, err)
	from := linux.Monotonic() // the rings hold what was before, too
	var all sync.WaitGroup
	end := time.Now().Add(200 * time.Millisecond)
	for range 3 {
		var there, back [2]int
		assert.NilError(t, unix.Pipe2(there[:], unix.O_CLOEXEC))
		assert.NilError(t, unix.Pipe2(back[:], unix.O_CLOEXEC))
		all.Go(func() { pass(there[0], back[1], time.Time{}) })
		all.Go(func() { pass(back[0], there[1], end) })
	}
	all.Wait()
	_, err = history.ring.Freeze()
	assert.NilError(t, err)
	drained, err := history.ring.Drain()
	assert.NilError(t, err)
	assert.NilError(t, history.ring.Release())
	after, err := history.Kernel.Counters()
	assert.NilError(t, err)
	var missing uint64
	records := 0
	for _, cpu := range drained.CPUs {
		list := trace.Unfold(cpu.Records, 0)
		records += len(list)
		missing += trace.Unseen(list, []trace.Interval{{From: from, To: math.MaxUint64}})
	}
	t.Logf("%d records lack %d switches; the kernel side missed %d switches and wake-ups", records, missing, after.Unseen-before.Unseen)
	assert.Check(t, records > 100 && missing <= after.Unseen-before.Unseen, "the history lacks %d switches, of %d missed", missing, after.Unseen-before.Unseen)
}

// pass passes a byte on until a time, or until nobody sends any more.
func pass(from, to int, end time.Time) {
	defer unix.Close(from)
	defer unix.Close(to)
	b := make([]byte, 1)
	for end.IsZero() || time.Now().Before(end) {
		if !end.IsZero() {
			if _, err := unix.Write(to, b); err != nil {
				return
			}
		}
		if n, err := unix.Read(from, b); n != 1 || err != nil {
			return
		}
		if end.IsZero() {
			if _, err := unix.Write(to, b); err != nil {
				return
			}
		}
	}
}
