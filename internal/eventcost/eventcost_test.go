package eventcost

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker"
)

// TestList holds the list against what the recorder can decode: each type has
// an event, each group too.
func TestList(t *testing.T) {
	list, err := List()
	assert.NilError(t, err)
	events, groups := map[string]bool{}, map[string]bool{}
	for _, e := range list {
		assert.Check(t, e.Hook != "" && len(e.Fields) != 0 && e.Available != (e.Reason != "") &&
			slices.Contains(e.Groups, e.Group), "%+v", e)
		events[e.Event] = true
		for _, g := range e.Groups {
			groups[g] = true
		}
	}
	for typ := trace.SchedSwitch; typ <= trace.Interrupts; typ++ {
		want := typ.String()
		switch typ {
		case trace.SyscallEntry:
			want = "syscall_entry_*"
		case trace.SyscallExit:
			want = "syscall_exit_*"
		}
		assert.Check(t, events[want], "no event %s", want)
	}
	for _, g := range tracker.Groups {
		assert.Check(t, groups[g], "no event of group %s", g)
	}
}

func TestPrice(t *testing.T) {
	p := NewCost(1000, 150*time.Microsecond, 50, 500*time.Millisecond)
	if want := (Cost{Events: 1000, ForNS: 5e8, PerSecond: 2000, NS: 100, NSGross: 150, CPUPercent: 0.02}); *p != want {
		t.Errorf("%+v, want %+v", *p, want)
	}
	if p := NewCost(0, 0, 50, time.Second); p.NS != 0 || p.CPUPercent != 0 {
		t.Errorf("of nothing: %+v", *p)
	}
	if p := NewCost(10, 10, 50, time.Second); p.NS != 0 {
		t.Errorf("less than nothing: %+v", *p)
	}
}

// TestMeasure measures the running kernel, and that nothing of it stays.
func TestMeasure(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs, enables their statistics")
	}
	list, err := Measure(context.Background(), 300*time.Millisecond)
	assert.NilError(t, err)
	for _, e := range list {
		switch {
		case e.Event == trace.Steal.String(), e.Event == trace.Interrupts.String(), e.Event == trace.WaitStack.String(): // it has no program of its own
		case e.Available != (e.Cost != nil):
			t.Errorf("%s: available %t, measured %t", e.Event, e.Available, e.Cost != nil)
		case e.Event == "sched_switch" && (e.Cost.Events == 0 || e.Cost.NSGross <= 0 || e.Cost.PerSecond <= 0):
			t.Errorf("no price: %+v", *e.Cost)
		}
	}
}
