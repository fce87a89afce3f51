package guest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestTimeoutCPUOffline takes the last CPU away, on which one of the timers of
// timeouts is: they go on, and go on after it is back.
func TestTimeoutCPUOffline(t *testing.T) {
	inGuest(t)
	power := switchOfCPU1(t)
	const timeout, asked = 100 * time.Millisecond, 400 * time.Millisecond
	kernel, outliers := watch(t, []rules.Rule{{
		Name: "offcpu", Track: rules.OffCPU, Timeout: timeout, When: rules.Match{PID: []uint32{uint32(os.Getpid())}, State: []rules.State{rules.Interruptible}},
	}}, &tracker.Options{TrackSelf: true, Tasks: 4096})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	defer power("1")
	for _, on := range []string{"0", "1"} {
		power(on)
		time.Sleep(600 * time.Millisecond) // long enough to miss the ticks
		assert.NilError(t, kernel.KeepTicking())
		begin := linux.Monotonic()
		sleep(t, asked)
		for {
			o := await(t, outliers, "offcpu", tid)
			if o.StartMono < begin {
				continue
			}
			t.Logf("CPU 1 %s: %s after %v", on, o.Cause, time.Duration(o.DelayNS))
			assert.Check(t, o.Cause == events.CauseTimeout, "CPU 1 %s: first came %s", on, o.Cause)
			break
		}
	}
}
