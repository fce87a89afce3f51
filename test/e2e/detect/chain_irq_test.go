package detect

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
)

// A direct read of a real disk comes back by interrupt: to the task in a few
// stages, all of which the chain names.
func TestChainDisk(t *testing.T) {
	needRoot(t)
	const requests = 200
	file := newOrdinary(t, 1<<20)
	rule := func(name string, when rules.Match) rules.Rule {
		when.Comm, when.From, when.Ends = []string{"inj-block"}, []rules.Origin{rules.FromIRQ}, []rules.End{rules.ToRun}
		return rules.Rule{Name: name, Track: rules.Chain, Threshold: time.Microsecond, When: when}
	}
	c := watch(t, []rules.Rule{rule("any", rules.Match{})}, nil)
	inject.Run(t, "block", file.path, "read", "4096", fmt.Sprint(requests), "1")
	ways, irqs := map[string]int{}, map[uint32]int{}
	for _, o := range c.settle() {
		way := stagesOf(t, o)
		ways[way]++
		number, name, _ := strings.Cut(strings.TrimPrefix(o.Chain.Origin, "irq "), " ")
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || name == "" || !strings.HasPrefix(way, "irq ") || !strings.HasSuffix(way, "wakeup") {
			t.Errorf("origin %q, way %s", o.Chain.Origin, way)
			continue
		}
		irqs[uint32(n)]++
	}
	t.Logf("ways: %v", ways)
	var disk uint32
	for n, count := range irqs {
		if count > irqs[disk] {
			disk = n
		}
	}
	if irqs[disk] < requests/4 {
		t.Skipf("of %d reads %d were told by one interrupt; this disk has none of its own, or is polled: %v", requests, irqs[disk], ways)
	}

	c = watch(t, []rules.Rule{
		rule("this", rules.Match{IRQ: []uint32{disk}}),
		rule("others", rules.Match{NotIRQ: []uint32{disk}}),
		rule("network", rules.Match{IRQ: []uint32{disk}, Vector: []rules.Vector{"net_rx"}}),
	}, nil)
	inject.Run(t, "block", file.path, "read", "4096", fmt.Sprint(requests), "1")
	found := map[string]int{}
	for _, o := range c.settle() {
		found[o.Rule]++
		ours := strings.HasPrefix(o.Chain.Origin, fmt.Sprintf("irq %d ", disk))
		if ours != (o.Rule == "this") {
			t.Errorf("rule %s reports %s", o.Rule, o.Chain.Origin)
		}
	}
	t.Logf("interrupt %d: %v", disk, found)
	if found["this"] < requests/4 {
		t.Errorf("found %v of %d reads", found, requests)
	}
	c.carriesNothing()
}
