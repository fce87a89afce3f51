package guest

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// TestNothingUnseen has threads wake each other as fast as they can, many of
// them while they are being switched out: of no switch and no wake-up may the
// kernel side believe that the kernel has left it out.
func TestNothingUnseen(t *testing.T) {
	inGuest(t)
	kernel, err := tracker.New([]rules.Rule{
		{Name: "wakeup", Track: rules.Wakeup, Threshold: time.Hour},
		{Name: "offcpu", Track: rules.OffCPU, Threshold: time.Hour},
	}, &tracker.Options{TrackSelf: true})
	assert.NilError(t, err)
	defer kernel.Close()
	assert.NilError(t, kernel.Attach())
	// Fewer and more threads than CPUs: those wake what is just going to sleep, these what waits.
	for _, pairs := range []int{1, 4} {
		var all sync.WaitGroup
		for range pairs {
			pingPong(t, &all, time.Second)
		}
		all.Wait()
	}
	k, err := kernel.Counters()
	assert.NilError(t, err)
	woken := k.Trackers[rules.Wakeup].Seen
	t.Logf("%d wake-ups, %d unseen", woken, k.Unseen)
	assert.Check(t, woken >= 1000 && k.Unseen <= 0,
		"%d wake-ups and switches of %d are taken for left out", k.Unseen, woken)
}

// pingPong has two threads pass a byte to and fro for a while.
func pingPong(t *testing.T, all *sync.WaitGroup, long time.Duration) {
	t.Helper()
	var pipes [2][2]int // to each: read end, write end
	for i := range pipes {
		assert.NilError(t, unix.Pipe(pipes[i][:]))
	}
	end := time.Now().Add(long)
	for i := range pipes {
		from, to := pipes[i][0], pipes[1-i][1]
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer unix.Close(from)
			defer unix.Close(to) // the other has its end of file
			b := make([]byte, 1)
			if i == 0 {
				_, _ = unix.Write(to, b)
			}
			for time.Now().Before(end) {
				if n, err := unix.Read(from, b); n == 0 || err != nil {
					return
				}
				if _, err := unix.Write(to, b); err != nil {
					return
				}
			}
		})
	}
}
