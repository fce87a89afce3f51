package detect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker"
)

// TestShedGroups: see provoke.Shed.
func TestShedGroups(t *testing.T) {
	needRoot(t)
	provoke.Shed(t)
}

// TestShedTracker: a tracker all of whose rules are paused can be detached. It
// reports nothing meanwhile, all that comes after it is back, and nothing of
// what was pending when it went.
func TestShedTracker(t *testing.T) {
	list := []rules.Rule{{
		Name: "sleeps", Track: rules.OffCPU, Threshold: threshold,
		When: rules.Match{Comm: []string{"inj-off*"}, NotComm: []string{"inj-idle"}},
	}}
	c := watch(t, list, &tracker.Options{Groups: []string{"block"}})
	sleep := func(what string) {
		t.Helper()
		before := len(c.settle())
		events := inject.Run(t, "offcpu", "all", "60", micros(over), "60", micros(under), "8")
		got := len(c.since(before))
		must, mustNot, either := inject.Split(events, threshold, skew)
		missing := c.unseenOf(events)
		assert.Check(t, got <= len(must)+len(either) && got >= len(must)-missing,
			"%s: %d outliers of %d slow sleeps, %d near, %d fast; %d hidden",
			what, got, len(must), len(either), len(mustNot), missing)
	}
	sleep("before")
	attached := len(c.kernel.Programs())
	assert.NilError(t, c.kernel.Hold([]string{"sleeps"}))
	assert.NilError(t, c.kernel.Shed(&tracker.Shedding{Tracks: []rules.Track{rules.OffCPU}}))
	for _, p := range c.kernel.Programs() {
		assert.Check(t, !strings.HasPrefix(p[0], "sched_"), "%s is attached still", p[0])
	}
	pending, err := c.kernel.Pending()
	assert.NilError(t, err)
	assert.Check(t, is.Equal(0, pending[rules.OffCPU]))
	n := len(c.settle())
	inject.Run(t, "offcpu", "all", "20", micros(over), "20", micros(under), "8")
	assert.Check(t, is.Equal(n, len(c.settle())), "reported while it was shed")

	assert.NilError(t, c.kernel.Shed(&tracker.Shedding{}))
	assert.NilError(t, c.kernel.Hold(nil))
	assert.Check(t, is.Len(c.kernel.Programs(), attached))
	for i := range 3 {
		sleep(fmt.Sprint("after, ", i))
	}
}

// TestShedHistograms: delays are not counted while histograms are shed, and are
// again afterwards.
func TestShedHistograms(t *testing.T) {
	list := []rules.Rule{{
		Name: "sleeps", Track: rules.OffCPU, Threshold: time.Hour,
		Histogram: &rules.Histogram{By: rules.ByCgroup, Classes: 16},
	}}
	c := watch(t, list, nil)
	counts := func() (tracked, rule uint64) {
		h, err := c.kernel.Histograms()
		assert.NilError(t, err)
		all := h.Rules["sleeps"].All()
		return h.Trackers[rules.OffCPU].Count, all.Count
	}
	for _, shed := range []bool{true, false, true, false} {
		assert.NilError(t, c.kernel.Shed(&tracker.Shedding{Histograms: shed}))
		time.Sleep(20 * time.Millisecond) // programs at work finish
		tracked, rule := counts()
		inject.Run(t, "offcpu", "all", "20", micros(over), "20", micros(under), "4")
		trackedNow, ruleNow := counts()
		assert.Check(t, is.Equal(!shed, trackedNow > tracked), "shed %t: of the tracker from %d to %d", shed, tracked, trackedNow)
		assert.Check(t, is.Equal(!shed, ruleNow > rule), "shed %t: of the rule from %d to %d", shed, rule, ruleNow)
	}
}

// TestShedUserStacks: outliers have no user stacks while they are shed, and have
// them again afterwards.
func TestShedUserStacks(t *testing.T) {
	list := []rules.Rule{{
		Name: "sleeps", Track: rules.OffCPU, Threshold: threshold, Stacks: []rules.Stack{rules.KernelStack, rules.UserStack},
		When: rules.Match{Comm: []string{"inj-off*"}},
	}}
	c := watch(t, list, nil)
	for _, shed := range []bool{true, false} {
		assert.NilError(t, c.kernel.ShedUserStacks(shed))
		assert.NilError(t, c.kernel.Shed(&tracker.Shedding{UserStacks: shed}))
		n := len(c.settle())
		inject.Run(t, "offcpu", "all", "20", micros(over), "0", micros(under), "4")
		stacks := 0
		got := c.since(n)
		for _, o := range got {
			if len(o.Raw.User) > 0 {
				stacks++
			}
		}
		assert.Check(t, len(got) > 0 && shed == (stacks == 0),
			"shed %t: %d of %d outliers have user stacks", shed, stacks, len(got))
	}
}
