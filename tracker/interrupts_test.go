package tracker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

func TestInterruptFloors(t *testing.T) {
	f := newFloors([]rules.Rule{
		{
			Track: rules.IRQ, Threshold: 2 * time.Millisecond, When: rules.Match{IRQ: []uint32{4, 260, 300}},
			Overrides: []rules.Override{{When: rules.Match{IRQ: []uint32{300}}, Threshold: time.Millisecond}},
		},
		{
			Track: rules.Softirq, Threshold: 5, When: rules.Match{Phase: []rules.Phase{rules.Raise}, NotVector: []rules.Vector{"rcu"}},
			Overrides: []rules.Override{{When: rules.Match{Vector: []rules.Vector{"timer", "rcu"}}, Threshold: 3}},
		},
	})
	for irq, want := range map[int]uint64{4: 2e6, 44: 1e6, 5: never, 0: never, 255: never} {
		if f.irq[irq] != want {
			t.Errorf("floor of irq %d is %d, want %d", irq, f.irq[irq], want)
		}
	}
	for v, want := range map[int]uint64{0: 5, 1: 3, 8: 5, 9: never} {
		if f.softirq[0][v] != want {
			t.Errorf("floor of raised vector %d is %d, want %d", v, f.softirq[0][v], want)
		}
	}
	for v, floor := range f.softirq[1] {
		if floor != never {
			t.Errorf("floor of running vector %d is %d, want none", v, floor)
		}
	}
	// Without conditions, of every interrupt.
	f = newFloors([]rules.Rule{{Track: rules.IRQ, Threshold: 7}, {Track: rules.Softirq, Threshold: 8}})
	for i := range f.irq {
		if f.irq[i] != 7 {
			t.Fatalf("floor of irq %d is %d", i, f.irq[i])
		}
	}
	for p := range f.softirq {
		for v := range f.softirq[p] {
			if f.softirq[p][v] != 8 {
				t.Errorf("floor of phase %d, vector %d is %d", p, v, f.softirq[p][v])
			}
		}
	}
}

func TestInterruptConditions(t *testing.T) {
	c, err := compile([]rules.Rule{
		{Name: "i", Track: rules.IRQ, Threshold: 1, When: rules.Match{IRQ: []uint32{0}, NotIRQ: []uint32{5}, Name: []string{"nvme*"}, NotName: []string{"a", "b"}, NotCPU: []uint32{1}}},
		{Name: "s", Track: rules.Softirq, Threshold: 1, When: rules.Match{NotVector: []rules.Vector{"timer"}, Phase: []rules.Phase{rules.Run}, CPU: []uint32{2, 3}}},
	}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	i, s := &c.rules[0].When, &c.rules[1].When
	if want := uint32(matchIRQ | matchNotIRQ | matchHandler | matchNotHandler | matchNotCPU); i.Fields != want {
		t.Errorf("irq has conditions %#x, want %#x", i.Fields, want)
	}
	if want := uint32(matchVector | matchPhase | matchCPU); s.Fields != want {
		t.Errorf("softirq has conditions %#x, want %#x", s.Fields, want)
	}
	if i.Handlers != 1 || i.NotHandlers != 2 || len(c.handlers) != 2 {
		t.Errorf("lists of names %b, %b of %v", i.Handlers, i.NotHandlers, c.handlers)
	}
	if s.Vectors != 0xfffd || s.Phases != 2 {
		t.Errorf("vectors %#x, phases %b", s.Vectors, s.Phases)
	}
	want := map[bpf.TailcamSetKey]struct{}{
		{Set: uint32(i.IrqSet), Value: 0}: {}, {Set: uint32(i.NotIrqSet), Value: 5}: {}, {Set: uint32(i.NotCpuSet), Value: 1}: {},
		{Set: uint32(s.CpuSet), Value: 2}: {}, {Set: uint32(s.CpuSet), Value: 3}: {},
	}
	if diff := cmp.Diff(want, c.sets); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeInterrupts(t *testing.T) {
	raw := bpf.TailcamOutlier{Cpu: 3}
	raw.Extra[0], raw.Extra[1] = 36, 0
	raw.Extra[2] = 0x6f69747269760000 >> 16 // "virtio"
	o := newOutlier(&raw, &rules.Rule{Name: "r", Track: rules.IRQ})
	irq := 36
	if diff := cmp.Diff(&IRQInfo{IRQ: &irq, Name: "virtio", CPU: 3}, o.IRQ); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{"irq": 36, "cpu": 3}, o.Key); diff != "" {
		t.Error(diff)
	}
	f := factsOf(&raw, o)
	if f.IRQ != 36 || f.Handler != "virtio" || f.CPU != 3 {
		t.Errorf("facts %+v", f)
	}
	for _, tt := range []struct {
		vector, phase uint64
		want          IRQInfo
	}{
		{3, 0, IRQInfo{Vector: "net_rx", Phase: "raise", CPU: 3}},
		{9, 1, IRQInfo{Vector: "rcu", Phase: "run", CPU: 3}},
		{12, 77, IRQInfo{Vector: "12", Phase: "run", CPU: 3}},
	} {
		raw = bpf.TailcamOutlier{Cpu: 3}
		raw.Extra[0], raw.Extra[1] = tt.vector<<32, tt.phase
		o := newOutlier(&raw, &rules.Rule{Name: "r", Track: rules.Softirq})
		if diff := cmp.Diff(&tt.want, o.IRQ); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]uint64{"vector": tt.vector, "cpu": 3}, o.Key); diff != "" {
			t.Error(diff)
		}
	}
}
