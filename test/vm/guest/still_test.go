package guest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// How long a CPU may let a timer wait before the guest is said to have stood still. No test
// keeps a CPU that long.
const (
	shortNap = 200 * time.Millisecond
	stillFor = 10 * time.Second
)

// watchTimers says when a CPU has let a timer wait, until the end of the test: what failed
// meanwhile may run again, as no daemon gets on without timers.
func watchTimers(t *testing.T) {
	t.Helper()
	var stop atomic.Bool
	var all sync.WaitGroup
	t.Cleanup(func() {
		stop.Store(true)
		all.Wait()
	})
	for cpu := range runtime.NumCPU() {
		all.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends here
			if cpus.Keep(cpu) != nil {
				return
			}
			nap := unix.NsecToTimespec(shortNap.Nanoseconds())
			for !stop.Load() {
				start := linux.Monotonic()
				_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &nap, nil) // however it ends
				if took := time.Duration(linux.Monotonic() - start); took > stillFor {
					fmt.Printf("%sCPU %d let a timer of %s wait for %s\n", boot.StoodStill, cpu, shortNap, took)
				}
			}
		})
	}
}
