package detect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// during lets an injector go, changes the rules of the camera again and again
// until it ends, and returns what it did and what was reported.
func (c *camera) during(h *inject.Held, pause time.Duration, change func(n int) error) ([]inject.Event, []*events.Outlier) {
	c.t.Helper()
	h.LetGo()
	n := 0
	var injected []inject.Event
	for over := h.Ended(); injected == nil; {
		select {
		case err := <-over:
			injected = h.Events(err)
		case <-time.After(pause):
			n++
			assert.NilError(c.t, change(n))
		}
	}
	c.arrived()
	c.t.Logf("%d changes", n)
	assert.Check(c.t, n != 0, "nothing was changed meanwhile: this proves nothing")
	return injected, slices.Clone(c.from(0))
}

// sleepers is a rule for the sleeps of an injector.
func sleepers(name string, h *inject.Held) rules.Rule {
	return rules.Rule{
		Name: name, Track: rules.OffCPU, Threshold: threshold,
		When: rules.Match{Comm: []string{"inj-off*"}, PID: pidOf(h), NotComm: []string{"inj-idle"}},
	}
}

// Rules are replaced again and again while many threads are slow: a rule that
// stays misses nothing and reports nothing twice, wherever in the table it
// stands, whatever else is there, and with its threshold.
func TestSwap(t *testing.T) {
	needRoot(t)
	h := hold(t, "offcpu", "all", "4000", micros(over), "4000", micros(under), "32")
	stay := sleepers("stays", h)
	other := func(name string, at time.Duration) rules.Rule {
		return rules.Rule{Name: name, Track: rules.OffCPU, Threshold: at, When: rules.Match{Comm: []string{"nobody-*", "x"}}}
	}
	sets := [][]rules.Rule{
		{stay},
		{other("before", time.Millisecond), stay},
		{other("a", time.Hour), other("b", time.Microsecond), stay, other("c", time.Second)},
		{stay, {Name: "call", Track: rules.OffCPU, Threshold: time.Minute, When: rules.Match{Syscall: calls(t, "read")}}},
	}
	c := watch(t, sets[0], nil)
	counted := uint64(0)
	injected, reports := c.during(h, 20*time.Millisecond, func(n int) error {
		// What is still on its way when the rules have been replaced twice has no rule any more.
		c.eventually("what came before the last swap is read", func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if got := c.received["stays"]; got < counted {
				return fmt.Errorf("read %d, counted %d", got, counted)
			}
			return nil
		})
		err := c.kernel.Swap(sets[n%len(sets)])
		counted = c.counters().Rules["stays"].Outliers
		return err
	})
	c.balance(t, threshold, injected, reports, "stays").check(3000, 3000)
	for _, o := range reports {
		assert.Check(t, o.Rule == "stays", "rule %s reported %+v", o.Rule, o.Task)
	}
	n := c.counters().Rules["stays"].Outliers
	assert.Check(t, n == uint64(len(reports)), "counted %d over all swaps, read %d", n, len(reports))
}

// A threshold moves up and down all the time, always between what is slow and
// what is not: nothing is missed, invented or told twice.
func TestRetuneMissesNothing(t *testing.T) {
	const step = 200 * time.Microsecond
	needRoot(t)
	h := hold(t, "offcpu", "all", "3000", micros(over), "3000", micros(under), "32")
	c := watch(t, []rules.Rule{sleepers("moves", h)}, nil)
	generation, _, err := c.kernel.Adaptives()
	assert.NilError(t, err)
	injected, reports := c.during(h, 2*time.Millisecond, func(n int) error {
		at := threshold + time.Duration(n%2)*step
		return c.kernel.Retune(generation, []tracker.Tuning{{Rule: "moves", Override: tracker.OwnThreshold, Threshold: at}})
	})
	const middle = threshold + step/2
	for _, o := range reports {
		assert.Check(t, o.ThresholdNS == threshold.Nanoseconds() || o.ThresholdNS == (threshold+step).Nanoseconds(),
			"threshold %d", o.ThresholdNS)
		o.ThresholdNS = middle.Nanoseconds() // what balance wants of all
	}
	for i := range injected {
		if e := &injected[i]; e.Delay() >= threshold && e.Delay() < threshold+step {
			e.Kind = inject.Spoilt // longer than asked: above the one threshold, below the other
		}
	}
	c.balance(t, middle, injected, reports, "moves").check(2000, 2000)
}

// A new threshold holds from now on.
func TestSwapThreshold(t *testing.T) {
	rule := rules.Rule{Name: "offcpu", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-offcpu"}}}
	c := watch(t, []rules.Rule{rule}, nil)
	injected := inject.Run(t, "offcpu", "all", "24", micros(over), "24", micros(under), "8")
	c.balance(t, threshold, injected, c.settle(), "offcpu").check(20, 20)
	rule.Threshold = 10 * over
	assert.NilError(t, c.kernel.Swap([]rules.Rule{rule}))
	before := len(c.settle())
	injected = inject.Run(t, "offcpu", "all", "24", micros(over), "24", micros(under), "8")
	c.balance(t, rule.Threshold, injected, c.since(before), "offcpu").check(0, 44)
}
