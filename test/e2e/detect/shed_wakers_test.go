package detect

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
)

// TestShedWakers: with no program at wake-ups, the same waits are told of, by the scheduler's own
// account; who woke the task, and who ran instead, is not, and is again once wakers are back.
func TestShedWakers(t *testing.T) {
	yes, no := true, false
	when := func(preempted *bool) rules.Match {
		return rules.Match{Comm: []string{"inj-wakeup", "inj-preempt", "inj-new"}, Preempted: preempted}
	}
	list := []rules.Rule{
		{Name: "preempted", Track: rules.Wakeup, Threshold: threshold, Stacks: allStacks[:2], When: when(&yes)},
		{Name: "woken", Track: rules.Wakeup, Threshold: threshold, Stacks: allStacks[:2], When: when(&no)},
		{Name: "asleep", Track: rules.OffCPU, Threshold: threshold, Stacks: allStacks, When: rules.Match{Comm: []string{"inj-offcpu"}}},
	}
	c := watch(t, list, nil)
	attached := len(c.kernel.Programs())
	for _, shed := range []bool{true, false} {
		assert.NilError(t, c.kernel.Shed(&tracker.Shedding{Wakers: shed}))
		at := slices.ContainsFunc(c.kernel.Programs(), func(p [2]string) bool { return p[0] == "sched_waking" })
		assert.Check(t, is.Equal(at, !shed), "a program is attached to wake-ups")
		assert.Check(t, is.Equal(len(c.kernel.Programs()) == attached, !shed))
		for _, injector := range []struct {
			rule    string
			command []string
		}{
			{"woken", []string{"wakeup", "60", micros(over), "400", micros(under), "8"}},
			{"preempted", []string{"preempt", "25", micros(over), "100", micros(under)}},
			{"woken", []string{"newtask", "50", micros(over)}},
			{"asleep", []string{"offcpu", "all", "60", micros(over), "400", micros(under), "8"}},
		} {
			n := len(c.settle())
			events := inject.Run(t, injector.command...)
			reports := c.since(n)
			for _, o := range reports {
				assert.Check(t, is.Equal(o.Rule, injector.rule), "%v: %v of %+v", injector.command, o.DelayNS, o.Task)
			}
			for _, p := range c.balance(t, threshold, events, reports, injector.rule).check(20, 0) {
				o := p.reports[0]
				assert.Check(t, is.Equal(o.Preempted, injector.rule == "preempted"))
				if shed {
					assert.Check(t, o.Waker == nil && o.OnCPU == nil, "%v: woken by %+v, while %+v ran", injector.command, o.Waker, o.OnCPU)
				} else if injector.rule == "woken" {
					assert.Check(t, o.Waker != nil || c.unseenOf(events) > 0, "%v: woken by no one", injector.command)
				}
				if injector.rule == "asleep" {
					assert.Check(t, o.RunnableNS <= o.DelayNS, "runnable %d ns of a sleep of %d", o.RunnableNS, o.DelayNS)
				}
			}
		}
	}
}
