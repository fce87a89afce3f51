package tracker

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Sizes of the floors (bpf/state.h, bpf/abi/abi.h).
const (
	irqClasses = 256
	softirqs   = 16
)

// phases in the order of the kernel side's (bpf/abi/abi.h, PHASE_*).
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

// handlerNameLen is the size of a handler's name with its NUL (bpf/abi/abi.h).
const handlerNameLen = 32

// handlerHash is the id of a handler's name in verdicts (bpf/irq.h, handler_hash).
func handlerHash(name string) uint64 {
	var b [handlerNameLen]byte
	copy(b[:handlerNameLen-1], name)
	var h uint64
	for i := 0; i < len(b); i += 8 {
		h = (h ^ binary.LittleEndian.Uint64(b[i:])) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// teachHandlers decides the conditions on names for every handler that is there.
// One that comes later is decided when it is first asked for.
func (t *Tracker) teachHandlers(c *compiled) error {
	if len(c.handlers) == 0 {
		return nil
	}
	files, err := filepath.Glob("/sys/kernel/irq/*/actions")
	if err != nil {
		return err // the pattern is good
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // this interrupt is gone
		}
		for _, name := range strings.Split(strings.TrimSuffix(string(b), "\n"), ",") {
			name = name[:min(len(name), handlerNameLen-1)]
			if err := t.teach(c, verdictHandler, handlerHash(name), verdict(c.handlers, rules.GlobMatch, name)); err != nil {
				return err
			}
		}
	}
	return nil
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

// leastInterrupt is the lowest floor of irq and softirq.
func (f *floors) leastInterrupt() uint64 {
	return min(slices.Min(f.irq[:]), slices.Min(f.softirq[0][:]), slices.Min(f.softirq[1][:]))
}
