package tracker

import (
	"slices"

	"github.com/tailcam/tailcam/rules"
)

// floors holds, for each key class, the smallest threshold in nanoseconds
// that any rule could apply to it (bpf/state.h).
type floors struct {
	wakeup  [2]uint64    // by is-kernel-thread
	offcpu  [2][3]uint64 // by is-kernel-thread, number of the state
	syscall [maxSyscalls]uint64
	block   [8]uint64 // by number of the op
	irq     [irqClasses]uint64
	pair    map[string]uint64   // by name of the rule
	softirq [2][softirqs]uint64 // by phase, vector
	chain   [4]uint64           // by number of the end
	span    uint64

	chainFrom   uint8 // where chains that any rule wants may begin
	wakerStacks bool  // a wakeup rule wants the stacks of wakers
}

// Calls that never return, or return as another call, cannot be paired.
var unpaired = []string{"exit", "exit_group", "rt_sigreturn"}

// newFloors takes, of each rule and override, whichever limit fires first at an exit.
func newFloors(list []rules.Rule) floors {
	f := lowestLimits(list, func(l rules.Limits) uint64 {
		return min(limitOf(l.Threshold), limitOf(l.Timeout))
	})
	for i := range list {
		if list[i].Histogram != nil {
			f.lowerFor(&list[i], &list[i].When, tracked)
		}
	}
	f.unpaired()
	return f
}

// newTimeoutFloors takes the timeouts.
func newTimeoutFloors(list []rules.Rule) floors {
	return lowestLimits(list, func(l rules.Limits) uint64 { return limitOf(l.Timeout) })
}

func lowestLimits(list []rules.Rule, limit func(rules.Limits) uint64) floors {
	var f floors
	noFloors(&f)
	for i := range list {
		if !list[i].Paused {
			f.lower(&list[i], limit)
		}
	}
	f.unpaired()
	return f
}

// unpaired takes out the calls that have no exit of their own.
func (f *floors) unpaired() {
	for _, name := range unpaired {
		if nr, ok := rules.SyscallNumber(name); ok && nr < maxSyscalls {
			f.syscall[nr] = never
		}
	}
}

// noFloors lets nothing pass.
func noFloors(f *floors) {
	fill := func(s []uint64) {
		for i := range s {
			s[i] = never
		}
	}
	fill(f.wakeup[:])
	fill(f.offcpu[0][:])
	fill(f.offcpu[1][:])
	fill(f.syscall[:])
	fill(f.block[:])
	fill(f.irq[:])
	fill(f.softirq[0][:])
	fill(f.softirq[1][:])
	fill(f.chain[:])
	f.span = never
	f.pair = map[string]uint64{}
}

// lower lowers the floors of every class that r can fire for.
func (f *floors) lower(r *rules.Rule, limit func(rules.Limits) uint64) {
	f.lowerFor(r, &r.When, limit(rules.Limits{Threshold: r.Threshold, Timeout: r.Timeout}))
	for i := range r.Overrides {
		f.lowerFor(r, &r.Overrides[i].When, limit(r.LimitsOf(i)))
	}
}

// lowerFor takes one threshold: of the rule itself, or of an override, which
// both the rule's and its own conditions guard.
func (f *floors) lowerFor(r *rules.Rule, m *rules.Match, threshold uint64) {
	for kthread, t := range []rules.Thread{rules.UserThread, rules.KernelThread} {
		if !admits(r.When.Thread, nil, t) || !admits(m.Thread, nil, t) {
			continue
		}
		switch r.Track {
		case rules.Wakeup:
			f.wakeup[kthread] = min(f.wakeup[kthread], threshold)
		case rules.OffCPU:
			for i, s := range []rules.State{rules.Interruptible, rules.Uninterruptible, rules.OtherState} {
				if admits(r.When.State, nil, s) && admits(m.State, nil, s) {
					f.offcpu[kthread][i] = min(f.offcpu[kthread][i], threshold)
				}
			}
		}
	}
	switch r.Track {
	case rules.Syscall:
		for nr := range f.syscall {
			if admits(r.When.Syscall, r.When.NotSyscall, nr) && admits(m.Syscall, m.NotSyscall, nr) {
				f.syscall[nr] = min(f.syscall[nr], threshold)
			}
		}
	case rules.Wakeup:
		f.wakerStacks = f.wakerStacks || threshold < tracked && slices.Contains(r.Stacks, rules.WakerStack)
	case rules.Chain:
		f.chainFrom |= chainFrom(r.When.From)
		for i, end := range rules.Ends {
			if admits(r.When.Ends, nil, end) {
				f.chain[i] = min(f.chain[i], threshold)
			}
		}
	case rules.Block:
		for i, op := range []rules.Op{rules.Read, rules.Write, rules.Flush, rules.Discard, rules.Other} {
			if admits(r.When.Op, nil, op) && admits(m.Op, nil, op) {
				f.block[i] = min(f.block[i], threshold)
			}
		}
	case rules.IRQ, rules.Softirq:
		f.lowerInterrupts(r, m, threshold)
	case rules.Span:
		f.span = min(f.span, threshold)
	case rules.Pair:
		f.pair[r.Name] = min(f.pairOf(r.Name), threshold)
	}
}

// pairOf is the floor of a declared pair, by the name of its rule.
func (f *floors) pairOf(name string) uint64 {
	if v, ok := f.pair[name]; ok {
		return v
	}
	return never
}

func admits[T comparable](want, not []T, v T) bool {
	return (len(want) == 0 || slices.Contains(want, v)) && !slices.Contains(not, v)
}

// offcpuStates are the floors of offcpu by the number of the state alone.
func (f *floors) offcpuStates() [4]uint64 {
	least := [4]uint64{3: never}
	for i := range f.offcpu[0] {
		least[i] = min(f.offcpu[0][i], f.offcpu[1][i])
	}
	return least
}

// least is the lowest floor of each pending table (bpf/abi/abi.h, enum table_kind).
func (f *floors) least() [8]uint64 {
	states := f.offcpuStates()
	return [8]uint64{
		min(slices.Min(f.wakeup[:]), slices.Min(states[:])), slices.Min(f.syscall[:]), slices.Min(f.block[:]), f.leastPair(),
		f.span, never, never, never,
	}
}

func (f *floors) leastPair() uint64 {
	var least uint64 = never
	for _, v := range f.pair {
		least = min(least, v)
	}
	return least
}
