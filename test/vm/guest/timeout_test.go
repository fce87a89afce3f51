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

// TestTimeouts expects a sleep to be reported while it lasts, again and again,
// with the stack it sleeps in, and then its end. On kernels that do not hand
// out tasks to the tick, user space takes the stack.
func TestTimeouts(t *testing.T) {
	inGuest(t)
	const timeout, repeat, asked = 100 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond
	me := rules.Match{PID: []uint32{uint32(os.Getpid())}}
	asleep := me
	asleep.Syscall = sleepCalls()
	list := []rules.Rule{
		{Name: "offcpu", Track: rules.OffCPU, Timeout: timeout, Repeat: repeat, When: asleep, Stacks: []rules.Stack{rules.KernelStack, rules.UserStack}},
		{Name: "syscall", Track: rules.Syscall, Attach: attachCalls(), Timeout: timeout, Repeat: repeat, When: asleep,
			Stacks: []rules.Stack{rules.KernelStack, rules.UserStack, rules.ProgressStacks}},
		{Name: "wakeup", Track: rules.Wakeup, Timeout: 10 * time.Second, When: me, Stacks: []rules.Stack{rules.KernelStack}},
		{Name: "block", Track: rules.Block, Timeout: 10 * time.Second, Stacks: []rules.Stack{rules.KernelStack}},
	}
	_, outliers := watch(t, list, &tracker.Options{TrackSelf: true, Tasks: 4096})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	for _, rule := range []string{"offcpu", "syscall"} {
		agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
			begin := linux.Monotonic()
			took := sleep(t, asked)
			for i := range 3 {
				o := await(t, outliers, rule, tid)
				for o.StartMono < begin { // of the sleep before
					o = await(t, outliers, rule, tid)
				}
				due := timeout + time.Duration(i)*repeat
				t.Logf("%s: %s after %v, due after %v, %s, %d frames", rule, o.Cause, time.Duration(o.DelayNS), due, o.State, len(o.Raw.Kernel))
				if o.Cause == events.CauseAfterTimeout {
					return nil, 0, 0 // nobody had a look when it was due
				}
				assert.Check(t, o.Cause == events.CauseTimeout && len(o.Raw.Kernel) >= 3 && o.State == "interruptible" &&
					len(o.Raw.User) != 0,
					"%s: %s in state %s, %d kernel and %d user frames", rule, o.Cause, o.State, len(o.Raw.Kernel), len(o.Raw.User))
				if late := time.Duration(o.DelayNS) - due; late < 0 || late > 2*slack {
					return nil, 0, 0
				}
			}
			o := await(t, outliers, rule, tid)
			if o.Cause == events.CauseTimeout && took > asked+slack {
				return nil, 0, 0 // it woke up too late, and was due once more
			}
			assert.Check(t, o.Cause == events.CauseAfterTimeout && o.AfterTimeout, "%s: at last %s", rule, o.Cause)
			return o, asked, took
		})
	}
}

// TestTimeoutClockJump sets the wall clock an hour ahead and back while work is
// pending: ages are of the clock that never jumps.
func TestTimeoutClockJump(t *testing.T) {
	inGuest(t)
	const timeout, asked = 200 * time.Millisecond, 500 * time.Millisecond
	_, outliers := watch(t, []rules.Rule{{
		Name: "offcpu", Track: rules.OffCPU, Timeout: timeout, When: rules.Match{PID: []uint32{uint32(os.Getpid())}, State: []rules.State{rules.Interruptible}},
	}}, &tracker.Options{TrackSelf: true, Tasks: 4096})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		begin := linux.Monotonic()
		time.AfterFunc(timeout/4, func() { stepClock(t, jump) })
		took := sleep(t, asked)
		for {
			o := await(t, outliers, "offcpu", tid)
			if o.StartMono < begin || time.Duration(o.DelayNS) < timeout {
				continue
			}
			t.Logf("clock %v: %s after %v", jump, o.Cause, time.Duration(o.DelayNS))
			assert.Check(t, time.Duration(o.DelayNS) <= took+slack,
				"reported %v of a sleep of %v", time.Duration(o.DelayNS), took)
			if o.Cause == events.CauseAfterTimeout {
				break
			}
		}
	}
}

// watch loads and attaches rules, and reads their outliers until the test ends.
func watch(t *testing.T, list []rules.Rule, opts *tracker.Options) (*tracker.Tracker, <-chan *events.Outlier) {
	t.Helper()
	kernel, err := tracker.New(list, opts)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, kernel.Close())
	})
	assert.Assert(t, len(kernel.Inactive()) == 0, "not on this kernel: %v", kernel.Inactive())
	attach(t, kernel)
	return kernel, collect(t, kernel)
}
