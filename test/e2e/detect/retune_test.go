package detect

import (
	"slices"
	"testing"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
)

// A threshold moves up and down all the time, always between what is slow and
// what is not: nothing is missed, invented or told twice.
func TestRetuneMissesNothing(t *testing.T) {
	const step = 200 * time.Microsecond
	needRoot(t)
	h := hold(t, "offcpu", "all", "3000", micros(over), "3000", micros(under), "32")
	c := watch(t, []rules.Rule{{
		Name: "moves", Track: rules.OffCPU, Threshold: threshold,
		When: rules.Match{Comm: []string{"inj-off*"}, PID: []uint32{h.pid()}, NotComm: []string{"inj-idle"}},
	}}, nil)
	generation, _, err := c.kernel.Adaptives()
	if err != nil {
		t.Fatal(err)
	}
	h.letGo()
	over := make(chan struct{})
	go func() {
		h.cmd.Wait() // looked at below
		close(over)
	}()
	tunings := 0
	for ended := false; !ended; {
		select {
		case <-over:
			ended = true
		case <-time.After(2 * time.Millisecond):
			tunings++
			at := threshold + time.Duration(tunings%2)*step
			if err := c.kernel.Retune(generation, []tracker.Tuning{{Rule: "moves", Override: tracker.OwnThreshold, Threshold: at}}); err != nil {
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
	t.Logf("%d changes of the threshold", tunings)
	const middle = threshold + step/2
	for _, o := range reports {
		if o.ThresholdNS != threshold.Nanoseconds() && o.ThresholdNS != (threshold+step).Nanoseconds() {
			t.Errorf("threshold %d", o.ThresholdNS)
		}
		o.ThresholdNS = middle.Nanoseconds() // what balance wants of all
	}
	for i := range injected {
		if e := &injected[i]; e.Delay() >= threshold && e.Delay() < threshold+step {
			e.Kind = inject.Spoilt // longer than asked: above the one threshold, below the other
		}
	}
	c.balance(t, middle, injected, reports, "moves").check(2000, 2000)
}
