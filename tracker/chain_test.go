package tracker

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// rawChain is an outlier of the kernel side that carries c.
func rawChain(t *testing.T, c *bpf.TailcamChain, delay uint64) *bpf.TailcamOutlier {
	t.Helper()
	raw := &bpf.TailcamOutlier{StartNs: 1000, TimeNs: 1000 + delay, Syscall: -1}
	b := make([]byte, 8*len(raw.Extra))
	if _, err := binary.Encode(b, binary.LittleEndian, c); err != nil {
		t.Fatal(err)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &raw.Extra); err != nil {
		t.Fatal(err)
	}
	return raw
}

func stageAt(kind, cpu, at uint64, id uint32, name string) bpf.TailcamChainStage {
	s := bpf.TailcamChainStage{Packed: kind<<56 | cpu<<40 | at, Id: id}
	for i, c := range []byte(name) {
		s.Name[i] = int8(c)
	}
	return s
}

func TestDecodeChain(t *testing.T) {
	c := bpf.TailcamChain{From: 1, Stages: 4, End: 1, Irq: 36, Vectors: 1 << 4, Truncated: 1}
	c.Stage[0] = stageAt(1, 2, 0, 36, "virtio1-req.0")
	c.Stage[1] = stageAt(4, 2, 700, 4, "")
	c.Stage[2] = stageAt(5, 3, 650, 8, "reader") // a clock that lags
	c.Stage[3] = stageAt(6, 3, 900, 8, "reader")
	rule := &rules.Rule{Name: "chain", Track: rules.Chain}
	raw := rawChain(t, &c, 5000)
	o := newOutlier(raw, rule)
	if o.Chain == nil || o.Chain.Origin != "irq 36 virtio1-req.0" || o.Chain.End != "user" || !o.Chain.Cut || o.EntryCPU != 2 {
		t.Fatalf("got %+v", o.Chain)
	}
	var got []int64
	for _, s := range o.Chain.Stages {
		got = append(got, s.NS)
	}
	if !slices.Equal(got, []int64{700, 0, 200, 4100}) || o.Chain.Stages[1].What != "BLOCK" || o.Chain.Stages[3].Task.Comm != "reader" {
		t.Errorf("durations %v of %+v", got, o.Chain.Stages)
	}
	f := factsOf(raw, o)
	for _, tt := range []struct {
		when rules.Match
		want bool
	}{
		{rules.Match{From: []rules.Origin{rules.FromIRQ}, Ends: []rules.End{rules.ToUser}}, true},
		{rules.Match{From: []rules.Origin{rules.FromHRTimer, rules.FromSoftirq}}, false},
		{rules.Match{Ends: []rules.End{rules.ToRun, rules.ToBlock}}, false},
		{rules.Match{IRQ: []uint32{36}, Vector: []rules.Vector{"net_rx", "block"}}, true},
		{rules.Match{NotIRQ: []uint32{36}}, false},
		{rules.Match{Vector: []rules.Vector{"net_rx"}}, false},
	} {
		if tt.when.Matches(&f) != tt.want {
			t.Errorf("%+v: want %t", tt.when, tt.want)
		}
	}
}

// TestDecodeAnyChain: whatever the bytes are, stages add up to the delay.
func TestDecodeAnyChain(t *testing.T) {
	rule := &rules.Rule{Name: "chain", Track: rules.Chain}
	for seed := range byte(64) {
		raw := &bpf.TailcamOutlier{TimeNs: uint64(seed) << 30}
		b := bytes.Repeat([]byte{seed, 255 - seed, 7 * seed, 12}, 2*len(raw.Extra))
		if _, err := binary.Decode(b, binary.LittleEndian, &raw.Extra); err != nil {
			t.Fatal(err)
		}
		o := newOutlier(raw, rule)
		var sum int64
		for _, s := range o.Chain.Stages {
			if s.NS < 0 {
				t.Errorf("stage %+v", s)
			}
			sum += s.NS
		}
		if n := len(o.Chain.Stages); n > 0 && sum+o.Chain.Stages[0].AtNS != o.DelayNS {
			t.Errorf("%d stages of %d ns from %d on, delay %d", n, sum, o.Chain.Stages[0].AtNS, o.DelayNS)
		}
	}
}

func TestChainFloors(t *testing.T) {
	rule := func(threshold time.Duration, from []rules.Origin, to ...rules.End) rules.Rule {
		return rules.Rule{Name: "c", Track: rules.Chain, Threshold: threshold, When: rules.Match{From: from, Ends: to}}
	}
	f := newFloors([]rules.Rule{
		rule(5, []rules.Origin{rules.FromIRQ}, rules.ToRun, rules.ToBlock),
		rule(3, []rules.Origin{rules.FromSoftirq}, rules.ToBlock),
	})
	if f.chain != [4]uint64{5, never, 3, never} || f.chainFrom != 1|4 {
		t.Errorf("floors %v from %b", f.chain, f.chainFrom)
	}
	if f = newFloors([]rules.Rule{rule(7, nil)}); f.chain != [4]uint64{7, 7, 7, never} || f.chainFrom != 7 {
		t.Errorf("without from and to: floors %v from %b", f.chain, f.chainFrom)
	}
	if f = newFloors(nil); f.chainFrom != 0 {
		t.Errorf("without rules: from %b", f.chainFrom)
	}
}
