package kinds

import (
	"slices"
	"strconv"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

const nestedHandlers = "more than 4 nested handlers on one CPU: the innermost were missed"

// vectorOf names a softirq vector; one that is not known by its number.
func vectorOf(n uint32) rules.Vector {
	if int(n) < len(rules.Vectors) {
		return rules.Vectors[n]
	}
	return rules.Vector(strconv.Itoa(int(n)))
}

// phaseOf names a phase of a tracker's work (enum work_phase).
func phaseOf(track rules.Track, n uint32) rules.Phase {
	phases := rules.Phases(track)
	return phases[min(int(n), len(phases)-1)]
}

// PhaseBits are the numbers of the phases that conditions let pass.
func PhaseBits(phases []rules.Phase) (bits uint8) {
	for _, p := range phases {
		if p == rules.Run {
			bits |= 1 << abi.PhaseRun
		} else {
			bits |= 1 << abi.PhaseRaise // or PhaseWait, which has the same number
		}
	}
	return bits
}

// inIRQ: interrupts with the same low bits of their number share a class.
func inIRQ(class int, m *rules.Match) bool {
	return len(m.IRQ) == 0 || slices.ContainsFunc(m.IRQ, func(n uint32) bool { return int(n)%abi.IrqClasses == class })
}

// inSoftirq: classes are by phase and vector.
func inSoftirq(class int, m *rules.Match) bool {
	phase, vector := phaseOf(rules.Softirq, uint32(class/abi.Softirqs)), vectorOf(uint32(class%abi.Softirqs))
	return Admits(m.Phase, nil, phase) && Admits(m.Vector, m.NotVector, vector)
}

// VectorBits are the softirq vectors that conditions let pass.
func VectorBits(m *rules.Match) (bits uint32) {
	for i := range abi.Softirqs {
		if Admits(m.Vector, m.NotVector, vectorOf(uint32(i))) {
			bits |= 1 << i
		}
	}
	return bits
}

// Of both, the task is the one that was interrupted, and the key is the handler on its CPU.

func decodeIRQ(o *events.Outlier, m *Message) {
	x := extra[abi.IrqExtra](m)
	irq := int(x.Irq)
	o.IRQ = &events.IRQInfo{CPU: int(m.Cpu), IRQ: &irq, Name: Text(x.Name[:])}
	o.Key = map[string]uint64{"cpu": uint64(m.Cpu), "irq": uint64(x.Irq)}
}

func decodeSoftirq(o *events.Outlier, m *Message) {
	x := extra[abi.IrqExtra](m)
	o.IRQ = &events.IRQInfo{CPU: int(m.Cpu), Vector: string(vectorOf(x.Vector)), Phase: string(phaseOf(rules.Softirq, x.Phase))}
	o.Key = map[string]uint64{"cpu": uint64(m.Cpu), "vector": uint64(x.Vector)}
}

func interruptFacts(f *rules.Facts, m *Message) {
	x := extra[abi.IrqExtra](m)
	f.IRQ, f.Name, f.Vector, f.Phase = x.Irq, Text(x.Name[:]), vectorOf(x.Vector), phaseOf(rules.Softirq, x.Phase)
}

// Name is the name of an interrupt handler or a work queue.
func (m *Message) Name() string {
	if m.Rule.Track == rules.Workqueue {
		return Text(extra[abi.WorkExtra](m).Queue[:])
	}
	return Text(extra[abi.IrqExtra](m).Name[:])
}
