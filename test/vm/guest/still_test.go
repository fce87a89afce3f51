package guest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
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

// watchTimers says when a CPU has let a timer wait: what failed meanwhile may run again, as
// nothing that tests start gets on without timers.
func watchTimers() {
	if os.Getenv("TAILCAM_GUEST") != "1" || strings.HasSuffix(os.Getenv("TAILCAM_GUEST_KERNEL"), "-idle") {
		return
	}
	for cpu := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			if cpus.Keep(cpu) != nil {
				return
			}
			nap := unix.NsecToTimespec(shortNap.Nanoseconds())
			for {
				start := linux.Monotonic()
				_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &nap, nil) // however it ends
				if took := time.Duration(linux.Monotonic() - start); took > stillFor {
					fmt.Printf("%sCPU %d let a timer of %s wait for %s\n", boot.StoodStill, cpu, shortNap, took)
				}
			}
		}()
	}
}
