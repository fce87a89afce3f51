package tracker

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Sizes of the floors (bpf/state.h, bpf/abi.h).
const (
	irqClasses = 256
	softirqs   = 16
)

// phases in the order of the kernel side's (bpf/abi.h, PHASE_*).
var phases = []rules.Phase{rules.Raise, rules.Run}

// vectorOf names a softirq vector; one that is not known by its number.
func vectorOf(n uint32) rules.Vector {
	if int(n) < len(rules.Vectors) {
		return rules.Vectors[n]
	}
	return rules.Vector(strconv.Itoa(int(n)))
}

func phaseOf(n uint32) rules.Phase { return phases[min(int(n), len(phases)-1)] }

// irqExtra is what only irq and softirq outliers carry.
func irqExtra(raw *bpf.TailcamOutlier) *bpf.TailcamIrqExtra {
	b := make([]byte, 0, len(raw.Extra)*8)
	for _, w := range raw.Extra {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	var x bpf.TailcamIrqExtra
	_, _ = binary.Decode(b, binary.LittleEndian, &x) // it is smaller than extra
	return &x
}

// addInterrupt fills in what only irq and softirq know.
func (o *Outlier) addInterrupt(raw *bpf.TailcamOutlier) {
	x := irqExtra(raw)
	o.IRQ = &IRQInfo{CPU: int(raw.Cpu)}
	o.Key = map[string]uint64{"cpu": uint64(raw.Cpu)}
	if o.Track == string(rules.IRQ) {
		irq := int(x.Irq)
		o.IRQ.IRQ, o.IRQ.Name = &irq, text(x.Name[:])
		o.Key["irq"] = uint64(x.Irq)
		return
	}
	o.IRQ.Vector, o.IRQ.Phase = string(vectorOf(x.Vector)), string(phaseOf(x.Phase))
	o.Key["vector"] = uint64(x.Vector)
}

// handlerHash is the id of a handler's name in verdicts (bpf/irq.h, handler_hash).
func handlerHash(x *bpf.TailcamIrqExtra) uint64 {
	b := make([]byte, len(x.Name))
	for i, c := range x.Name {
		b[i] = byte(c)
	}
	var h uint64
	for i := 0; i < len(b); i += 8 {
		h = (h ^ binary.LittleEndian.Uint64(b[i:])) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// interruptConditions lays out the conditions of irq and softirq.
func (c *compiled) interruptConditions(m *rules.Match, k *bpf.TailcamConditions) {
	for _, s := range []struct {
		bit  uint32
		list []uint32
		set  *uint16
	}{
		{matchIRQ, m.IRQ, &k.IrqSet},
		{matchNotIRQ, m.NotIRQ, &k.NotIrqSet},
		{matchCPU, m.CPU, &k.CpuSet},
		{matchNotCPU, m.NotCPU, &k.NotCpuSet},
	} {
		if len(s.list) > 0 {
			k.Fields |= s.bit
			*s.set = c.set(s.list)
		}
	}
	if len(m.Vector)+len(m.NotVector) > 0 {
		k.Fields |= matchVector
		for i := range softirqs {
			if admits(m.Vector, m.NotVector, vectorOf(uint32(i))) {
				k.Vectors |= 1 << i
			}
		}
	}
	for _, p := range m.Phase {
		k.Fields |= matchPhase
		k.Phases |= 1 << slices.Index(phases, p)
	}
}

// lowerInterrupts takes one threshold of an irq or softirq rule. Interrupts
// with the same low bits of their number share a floor.
func (f *floors) lowerInterrupts(r *rules.Rule, m *rules.Match, threshold uint64) {
	if r.Track == rules.IRQ {
		could := func(m *rules.Match, class int) bool {
			return len(m.IRQ) == 0 || slices.ContainsFunc(m.IRQ, func(n uint32) bool { return int(n)%irqClasses == class })
		}
		for class := range f.irq {
			if could(&r.When, class) && could(m, class) {
				f.irq[class] = min(f.irq[class], threshold)
			}
		}
		return
	}
	for p := range f.softirq {
		for v := range f.softirq[p] {
			vector := vectorOf(uint32(v))
			if admits(r.When.Phase, nil, phases[p]) && admits(m.Phase, nil, phases[p]) &&
				admits(r.When.Vector, r.When.NotVector, vector) && admits(m.Vector, m.NotVector, vector) {
				f.softirq[p][v] = min(f.softirq[p][v], threshold)
			}
		}
	}
}
