package guest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/flight"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// TestWakerContext: a sleep ends by a timer, in an interrupt or a softirq, and not by the
// task on top of which that runs. No hook of interrupts or timers is attached: the kernel's
// own count says so.
func TestWakerContext(t *testing.T) {
	inGuest(t)
	const size = 1 << 20
	kernel, err := tracker.New(nil, &tracker.Options{Groups: []string{"sched"}, Ring: size, TrackSelf: true})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, kernel.Close()) })
	ring, err := flight.New(kernel, flight.BackendMmap, size)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, ring.Close()) })
	assert.NilError(t, kernel.Attach())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const sleeps = 10
	for range sleeps {
		d := unix.NsecToTimespec((20 * time.Millisecond).Nanoseconds())
		_ = unix.Nanosleep(&d, nil)
	}
	_, err = ring.Freeze()
	assert.NilError(t, err)
	drained, err := ring.Drain()
	assert.NilError(t, err)
	assert.NilError(t, ring.Release())
	by := map[trace.Type]int{}
	for _, cpu := range drained.CPUs {
		for i := range cpu.Records {
			ev, err := cpu.Records[i].Decode()
			assert.NilError(t, err)
			if w, ok := ev.Body.(trace.Wake); ok && w.TID == unix.Gettid() {
				kind, _ := w.Runs()
				by[kind]++
			}
		}
	}
	t.Logf("woken by: %v", by)
	assert.Check(t, by[trace.IRQEntry]+by[trace.SoftirqEntry] >= sleeps/2, "woken by: %v", by)
}
