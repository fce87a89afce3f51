package detect

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// A task that was preempted waits for a CPU as well, although no one wakes it.
func TestPreempted(t *testing.T) {
	yes, no := true, false
	when := func(preempted *bool) rules.Match {
		return rules.Match{Comm: []string{"inj-preempt"}, Preempted: preempted}
	}
	c := watch(t, []rules.Rule{
		{Name: "any", Track: rules.Wakeup, Threshold: threshold, Stacks: allStacks, When: when(nil)},
		{Name: "preempted", Track: rules.Wakeup, Threshold: threshold, When: when(&yes)},
		{Name: "woken", Track: rules.Wakeup, Threshold: threshold, When: when(&no)},
		{Name: "asleep", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-preempt"}}},
	}, nil)
	injected := exact(t, threshold, 40, 150, "preempt", "25", micros(over), "100", micros(under))
	reports := c.settle()
	check := func(rule string) []*pair {
		return c.balance(t, threshold, injected, reports, rule).check(40, 150)
	}
	found := check("any")
	check("preempted")
	for _, o := range reports {
		assert.Check(t, o.Rule != "woken" && o.Rule != "asleep",
			"rule %s reported %v of %+v, which was preempted", o.Rule, time.Duration(o.DelayNS), o.Task)
	}
	for _, p := range found {
		o := p.reports[0]
		assert.Check(t, o.Preempted && o.Waker == nil && o.Syscall == nil,
			"preempted %v, waker %+v, in %+v: was preempted, by no waker, in no call", o.Preempted, o.Waker, o.Syscall)
		assert.Check(t, o.WaitCPU != nil && *o.WaitCPU == p.CPU && o.EntryCPU == p.CPU,
			"waited on CPU %v, is pinned to %d", o.WaitCPU, p.CPU)
	}
	c.keptWaiting(t, found, byHog)
}

// A new task waits from the moment that its parent made it.
func TestNewTask(t *testing.T) {
	c := watch(t, []rules.Rule{{
		Name: "wakeup", Track: rules.Wakeup, Threshold: threshold, Stacks: allStacks,
		When: rules.Match{Comm: []string{"inj-new"}},
	}}, nil)
	injected := exact(t, threshold, 40, 0, "newtask", "50", micros(over))
	found := c.balance(t, threshold, injected, c.settle(), "wakeup").check(40, 0)
	for _, p := range found {
		o := p.reports[0]
		assert.Check(t, !o.Preempted, "marked preempted, but is new: %+v", p.Event)
		assert.Check(t, o.Waker != nil && o.Waker.Comm == "inj-new" && o.Waker.PID != p.PID,
			"waker %+v, want its parent", o.Waker)
		assert.Check(t, o.WaitCPU != nil && *o.WaitCPU == p.CPU,
			"waited on CPU %v, is pinned to %d", o.WaitCPU, p.CPU)
	}
	c.keptWaiting(t, found, func(p *pair, on *events.OnCPU) bool {
		w := p.reports[0].Waker
		return w != nil && on.TID == w.TID
	})
}
