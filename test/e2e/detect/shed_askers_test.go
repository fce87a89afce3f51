package detect

import (
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	program "github.com/tailcam/tailcam/internal/inject"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// TestShedAskers: with no program where requests begin, the same ones are told of, by the kernel's
// own account; who asked for them is not, and is again once askers are back. What is on its way
// then is not told as stuck, however long the rule's timeout has passed.
func TestShedAskers(t *testing.T) {
	needRoot(t)
	const timeout = 200 * time.Millisecond
	disk, err := program.Slow(t.Context())
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, disk.Close())
	})
	c := watch(t, []rules.Rule{{
		Name: "disk", Track: rules.Block, Threshold: blockThreshold, Timeout: timeout,
		When: rules.Match{Op: []rules.Op{rules.Read}, NotDevice: []string{"vd*", "sd*", "nvme*"}},
	}}, nil)
	attached := len(c.kernel.Programs())
	shed := func(shed bool) {
		t.Helper()
		assert.NilError(t, c.kernel.Shed(&tracker.Shedding{Askers: shed}))
		at := slices.ContainsFunc(c.kernel.Programs(), func(p [2]string) bool { return p[0] == "block_rq_issue" })
		assert.Check(t, is.Equal(at, !shed), "a program is attached where requests begin")
		assert.Check(t, is.Equal(len(c.kernel.Programs()) == attached, !shed))
	}
	for _, without := range []bool{true, false, true, false} {
		shed(without)
		for i := range 12 {
			delay := []time.Duration{blockOver, blockUnder}[i%2]
			n := len(c.settle())
			truth, err := disk.Read(t.Context(), delay)
			assert.NilError(t, err)
			reports := slices.DeleteFunc(c.since(n), func(o *events.Outlier) bool { return o.Block.Sector != truth.Sector })
			if delay < blockThreshold {
				assert.Check(t, len(reports) == 0 || truth.Delay() >= blockThreshold, "%+v of %+v", reports, truth)
				continue
			}
			assert.Assert(t, len(reports) == 1 || c.unseen() > 0, "%d reports of %+v", len(reports), truth)
			if len(reports) == 0 {
				continue
			}
			o := reports[0]
			assert.Check(t, is.Equal(o.Block.Device, truth.Device))
			assert.Check(t, is.Equal(o.Block.Bytes, uint32(4096)))
			assert.Check(t, o.StartMono >= truth.StartMono && o.EndMono <= truth.EndMono, "from %d to %d of %+v", o.StartMono, o.EndMono, truth)
			assert.Check(t, o.DelayNS >= delay.Nanoseconds()*9/10 && o.Block.QueueNS >= 0)
			if without {
				assert.Check(t, is.DeepEqual(o.Task, events.Task{}))
			} else {
				assert.Check(t, is.Equal(o.Task.TID, truth.TID))
			}
		}
	}
	// On their way while askers go, and while they come.
	for _, without := range []bool{true, false} {
		n := len(c.settle())
		done := make(chan program.Truth)
		go func() {
			defer close(done)
			truth, err := disk.Read(t.Context(), 3*timeout)
			assert.Check(t, err)
			done <- truth
		}()
		time.Sleep(timeout / 4)
		shed(without)
		truth := <-done
		time.Sleep(2 * timeout)
		reports := slices.DeleteFunc(c.since(n), func(o *events.Outlier) bool { return o.Block.Sector != truth.Sector })
		for _, o := range reports {
			assert.Check(t, is.Equal(o.Cause, events.CauseThreshold), "%+v", o)
		}
		assert.Check(t, without == (len(reports) == 1), "%d reports, askers shed: %t", len(reports), without)
	}
	c.noRequestsLeft()
}
