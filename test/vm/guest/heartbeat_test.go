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
	"github.com/tailcam/tailcam/tracker/kernel"
)

// TestHeartbeatRests: an idle machine is not woken for timeouts while nothing is pending
// that could be too old before the next look, and each timeout is reported nevertheless,
// before the work ends. Rules with a short one keep it awake.
func TestHeartbeatRests(t *testing.T) {
	inGuest(t)
	const timeout, asked, looks = 2 * time.Second, 4 * time.Second, time.Second
	list := []rules.Rule{{
		Name: "sleep", Track: rules.Syscall, Attach: attachCalls(), Timeout: timeout,
		When: rules.Match{PID: []uint32{uint32(os.Getpid())}, Syscall: sleepCalls()},
	}}
	k, outliers := watch(t, list, &tracker.Options{TrackSelf: true, Tasks: 4096})
	look := func() kernel.TickStats {
		t.Helper()
		assert.NilError(t, k.KeepTicking())
		s, err := k.Tick()
		assert.NilError(t, err)
		return s
	}
	untilRest := func() {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !look().Rests; time.Sleep(looks / 4) {
			assert.Assert(t, time.Now().Before(end), "it does not come to rest")
		}
	}
	for range 3 {
		untilRest()
		before := look()
		time.Sleep(looks)
		after := look()
		t.Logf("%d ticks in a second of rest", after.Ticks-before.Ticks)

		begin, slept := linux.Monotonic(), make(chan int, 1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			sleep(t, asked)
			slept <- unix.Gettid()
		}()
		woken := false
		for linux.Monotonic() < begin+uint64(timeout) {
			woken = woken || !look().Rests
			time.Sleep(looks / 2)
		}
		tid := <-slept
		o := await(t, outliers, "sleep", tid)
		for o.StartMono < begin {
			o = await(t, outliers, "sleep", tid)
		}
		assert.Check(t, woken, "it rested although a sleep of %v was as good as due", timeout)
		assert.Check(t, o.Cause == events.CauseTimeout && time.Duration(o.DelayNS) < asked, "first came %s after %v", o.Cause, time.Duration(o.DelayNS))
		t.Logf("reported after %v", time.Duration(o.DelayNS))
	}

	list[0].Timeout = 100 * time.Millisecond
	untilRest()
	assert.NilError(t, k.Swap(list))
	for range 5 {
		assert.Check(t, !look().Rests, "it rests with a timeout of %v", list[0].Timeout)
		time.Sleep(looks / 4)
	}
	list[0].Timeout = timeout
	assert.NilError(t, k.Swap(list))
	untilRest()
}
