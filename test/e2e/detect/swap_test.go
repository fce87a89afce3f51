package detect

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
)

// swapEvery leaves the reader time: what is still on its way when the rules
// have been replaced twice has no rule any more.
const swapEvery = 60 * time.Millisecond

// Rules are replaced again and again while many threads are slow: a rule that
// stays misses nothing and reports nothing twice, wherever in the table it
// stands, whatever else is there, and with its threshold.
func TestSwap(t *testing.T) {
	needRoot(t)
	h := hold(t, "offcpu", "all", "4000", micros(over), "4000", micros(under), "32")
	stay := rules.Rule{
		Name: "stays", Track: rules.OffCPU, Threshold: threshold,
		When: rules.Match{Comm: []string{"inj-off*"}, PID: []uint32{h.pid()}, NotComm: []string{"inj-idle"}},
	}
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
	h.letGo()
	over := make(chan struct{})
	go func() {
		h.cmd.Wait() // looked at below
		close(over)
	}()
	swaps := 0
	for ended := false; !ended; {
		select {
		case <-over:
			ended = true
		case <-time.After(swapEvery):
			swaps++
			if err := c.kernel.Swap(sets[swaps%len(sets)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !h.cmd.ProcessState.Success() {
		t.Fatalf("%v: %v", h.cmd.Args, h.cmd.ProcessState)
	}
	injected := injectedEvents(t, &h.out)
	c.arrived()
	c.mu.Lock()
	reports := slices.Clone(c.outliers)
	c.mu.Unlock()
	t.Logf("%d swaps", swaps)
	if swaps < 10 {
		t.Errorf("only %d swaps", swaps)
	}
	c.balance(t, threshold, injected, reports, "stays").check(3000, 3000)
	for _, o := range reports {
		if o.Rule != "stays" {
			t.Errorf("rule %s reported %+v", o.Rule, o.Task)
		}
	}
	if n := c.counters().Rules["stays"].Outliers; n != uint64(len(reports)) {
		t.Errorf("counted %d over all swaps, read %d", n, len(reports))
	}
}

// A swap that needs what is not attached changes nothing.
func TestSwapThatCannotBe(t *testing.T) {
	rule := rules.Rule{Name: "offcpu", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-offcpu"}}}
	c := watch(t, []rules.Rule{rule}, nil)
	err := c.kernel.Swap([]rules.Rule{{Name: "block", Track: rules.Block, Threshold: threshold}})
	if !errors.Is(err, tracker.ErrRestart) {
		t.Errorf("got %v, want %v", err, tracker.ErrRestart)
	}
	events := inject.Run(t, "offcpu", "all", "24", micros(over), "24", micros(under), "8")
	c.balance(t, threshold, events, c.settle(), "offcpu").check(20, 20)

	// A new threshold holds from now on.
	rule.Threshold = 10 * over
	if err := c.kernel.Swap([]rules.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	before := len(c.settle())
	events = inject.Run(t, "offcpu", "all", "24", micros(over), "24", micros(under), "8")
	c.balance(t, rule.Threshold, events, c.since(before), "offcpu").check(0, 44)
}
