package guest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestShed: see provoke.Shed.
func TestShed(t *testing.T) {
	inGuest(t)
	provoke.Shed(t)
}

// TestShedWakers: with no program at wake-ups, waits are told of as they were, but for who woke the task
// and who ran instead.
func TestShedWakers(t *testing.T) {
	inGuest(t)
	kernel, err := tracker.New(everyRule()[:2], &tracker.Options{TrackSelf: true, Tasks: 4096})
	assert.NilError(t, err)
	defer func() {
		assert.Check(t, kernel.Close())
	}()
	attach(t, kernel)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	outliers := collect(t, kernel)
	all := len(kernel.Programs())
	for _, shed := range []bool{true, false} {
		assert.NilError(t, kernel.Shed(&tracker.Shedding{Wakers: shed}))
		assert.Check(t, is.Equal(shed, len(kernel.Programs()) < all))
		agreeWakeup(t, outliers, "wakeup", func(o *events.Outlier, _ int) bool {
			assert.Check(t, is.Equal(shed, o.Waker == nil), "woken by %+v", o.Waker)
			assert.Check(t, !shed || o.OnCPU == nil, "%+v ran instead", o.OnCPU)
			return true
		})
		agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
			const asked = 100 * time.Millisecond
			drop(outliers)
			took := sleep(t, asked)
			o := await(t, outliers, "offcpu", unix.Gettid())
			assert.Check(t, !shed || o.Waker == nil, "woken by %+v", o.Waker)
			return o, asked, took
		})
	}
}

// TestShedAskers: with no program where block requests begin, they are told of as they were, but for
// who asked for them.
func TestShedAskers(t *testing.T) {
	inGuest(t)
	rule := rules.Rule{Name: "block", Track: rules.Block, Threshold: slowDiskDelay / 2, When: rules.Match{Device: []string{"null*"}}}
	k, outliers := watch(t, []rules.Rule{rule}, &tracker.Options{TrackSelf: true})
	all := len(k.Programs())
	for i, shed := range []bool{true, false} {
		assert.NilError(t, k.Shed(&tracker.Shedding{Askers: shed}))
		assert.Check(t, is.Equal(shed, len(k.Programs()) < all))
		agree(t, func() (*events.Outlier, time.Duration, time.Duration) {
			drop(outliers)
			took, err := readDirect(slowDisk, int64(i)<<20)
			assert.NilError(t, err)
			o := await(t, outliers, "block", 0)
			assert.Check(t, is.Equal(shed, o.Task.TID == 0 && o.Task.Comm == ""), "asked for by %+v", o.Task)
			assert.Check(t, o.Block.Op == "read" && o.Block.Sector == uint64(i)<<20/512, "%+v", o.Block)
			return o, slowDiskDelay * 99 / 100, took
		})
	}
}
