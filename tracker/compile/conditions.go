package compile

import (
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// conditions lays out those of a rule or an override.
func (g *Generation) conditions(m *rules.Match) (k abi.Conditions, err error) {
	set := func(bit uint32, on bool) bool {
		if on {
			k.Fields |= bit
		}
		return on
	}
	for _, v := range []struct {
		bit  uint32
		list []uint32
		set  *uint16
	}{
		{abi.MatchPid, m.PID, &k.PidSet}, {abi.MatchNotPid, m.NotPID, &k.NotPidSet},
		{abi.MatchTid, m.TID, &k.TidSet}, {abi.MatchNotTid, m.NotTID, &k.NotTidSet},
		{abi.MatchUid, m.UID, &k.UidSet}, {abi.MatchNotUid, m.NotUID, &k.NotUidSet},
		{abi.MatchSyscall, unsigned(m.Syscall), &k.SyscallSet}, {abi.MatchNotSyscall, unsigned(m.NotSyscall), &k.NotSyscallSet},
		{abi.MatchIrq, m.IRQ, &k.IrqSet}, {abi.MatchNotIrq, m.NotIRQ, &k.NotIrqSet},
		{abi.MatchCpu, m.CPU, &k.CpuSet}, {abi.MatchNotCpu, m.NotCPU, &k.NotCpuSet},
	} {
		if set(v.bit, len(v.list) > 0) {
			*v.set = g.set(v.list)
		}
	}
	for _, v := range []struct {
		bit  uint32
		list []string
		add  func([]string) (abi.GlobRange, error)
		at   *abi.GlobRange
	}{
		{abi.MatchComm, m.Comm, g.commGlobs, &k.Comm}, {abi.MatchNotComm, m.NotComm, g.commGlobs, &k.NotComm},
		{abi.MatchKey, m.Key, g.spanKeyGlobs, &k.Key}, {abi.MatchNotKey, m.NotKey, g.spanKeyGlobs, &k.NotKey},
	} {
		if set(v.bit, len(v.list) > 0) {
			if *v.at, err = v.add(v.list); err != nil {
				return k, err
			}
		}
	}
	for _, v := range []struct {
		bit  uint32
		list []string
		all  *[][]string
		mask *uint64
		what string
	}{
		{abi.MatchDevice, m.Device, &g.Devices, &k.Devices, "device"},
		{abi.MatchNotDevice, m.NotDevice, &g.Devices, &k.NotDevices, "device"},
		{abi.MatchName, m.Name, &g.Names, &k.Names, "name"},
		{abi.MatchNotName, m.NotName, &g.Names, &k.NotNames, "name"},
		{abi.MatchName, m.Queue, &g.Names, &k.Names, "queue"},
		{abi.MatchNotName, m.NotQueue, &g.Names, &k.NotNames, "queue"},
		{abi.MatchFunction, m.Function, &g.Functions, &k.Functions, "function"},
		{abi.MatchFunction, m.NotFunction, &g.Functions, &k.NotFunctions, "function"},
	} {
		if set(v.bit, len(v.list) > 0) {
			if *v.mask, err = verdictBit(v.all, v.list); err != nil {
				return k, fmt.Errorf("%s: %w", v.what, err)
			}
		}
	}
	if err := g.places(m, &k); err != nil {
		return k, err
	}
	if set(abi.MatchSector, m.Sector != nil) {
		k.FirstSector, k.LastSector = m.Sector.First, m.Sector.Last
	}
	if set(abi.MatchPreempted, m.Preempted != nil) {
		k.Preempted = flag(*m.Preempted)
	}
	set(abi.MatchOp, len(m.Op) > 0)
	k.Ops = wordBits(m.Op, []rules.Op{rules.Read, rules.Write, rules.Flush, rules.Discard, rules.Other})
	set(abi.MatchState, len(m.State) > 0)
	k.States = wordBits(m.State, []rules.State{rules.Interruptible, rules.Uninterruptible, rules.OtherState})
	set(abi.MatchThread, len(m.Thread) > 0)
	k.Threads = wordBits(m.Thread, []rules.Thread{rules.UserThread, rules.KernelThread})
	set(abi.MatchPhase, len(m.Phase) > 0)
	k.Phases = kinds.PhaseBits(m.Phase)
	set(abi.MatchEnd, len(m.Ends) > 0)
	k.Ends = wordBits(m.Ends, rules.Ends)
	set(abi.MatchFrom, len(m.From) > 0)
	k.From = kinds.ChainFrom(m.From)
	if set(abi.MatchVector, len(m.Vector)+len(m.NotVector) > 0) {
		k.Vectors = kinds.VectorBits(m)
	}
	return k, nil
}

// wordBits are those of the words of a list, each at its place among all.
func wordBits[T comparable](list, all []T) (mask uint8) {
	for _, v := range list {
		mask |= 1 << slices.Index(all, v)
	}
	return mask
}

func (g *Generation) commGlobs(patterns []string) (abi.GlobRange, error) {
	return addGlobs(&g.Globs, patterns, "comm", "comm patterns", abi.MaxGlobs, func(glob *abi.Glob) []byte { return glob.Pattern[:] })
}

// spanKeyGlobs lays out globs over the keys of spans.
func (g *Generation) spanKeyGlobs(patterns []string) (abi.GlobRange, error) {
	return addGlobs(&g.KeyGlobs, patterns, "key", "globs over keys", abi.MaxKeyGlobs,
		func(glob *abi.KeyGlob) []byte { return glob.Pattern[:] })
}

func addGlobs[T any](all *[]T, patterns []string, one, many string, most int, text func(*T) []byte) (abi.GlobRange, error) {
	r := abi.GlobRange{First: uint16(len(*all)), Count: uint16(len(patterns))}
	for _, p := range patterns {
		var glob T
		if room := text(&glob); len(p) >= len(room) {
			return r, fmt.Errorf("%s %q: at most %d bytes", one, p, len(room)-1)
		}
		copy(text(&glob), p)
		*all = append(*all, glob)
	}
	if len(*all) > most {
		return r, fmt.Errorf("more than %d %s in all rules together: remove some", most, many)
	}
	return r, nil
}

// set stores a list of numbers as members of a new set.
func (g *Generation) set(values []uint32) uint16 {
	g.NextSet++
	for _, v := range values {
		g.Sets[abi.SetKey{Set: uint32(g.NextSet), Value: v}] = struct{}{}
	}
	return g.NextSet
}

// verdictBit gives a pattern list its bit; equal lists share one.
func verdictBit(all *[][]string, list []string) (uint64, error) {
	i := slices.IndexFunc(*all, func(l []string) bool { return slices.Equal(l, list) })
	if i < 0 {
		i = len(*all)
		*all = append(*all, list)
	}
	if i >= 64 {
		return 0, fmt.Errorf("more than 64 different lists in all rules together: use the same list in several rules")
	}
	return 1 << i, nil
}

// CgroupCondition is what the daemon decides of a cgroup: whether all lists match, or any.
type CgroupCondition struct {
	rules.Places
	Any bool
}

// places lays out the conditions on cgroups, units, containers and pods: the kernel side
// knows a cgroup's id only, and asks for a verdict on that.
func (g *Generation) places(m *rules.Match, k *abi.Conditions) (err error) {
	all, not := m.Places()
	if !all.Empty() {
		k.Fields |= abi.MatchCgroup
		if k.Cgroups, err = g.cgroupBit(CgroupCondition{Places: all}); err != nil {
			return err
		}
	}
	if !not.Empty() {
		k.Fields |= abi.MatchNotCgroup
		k.NotCgroups, err = g.cgroupBit(CgroupCondition{Places: not, Any: true})
	}
	return err
}

// cgroupBit gives conditions their bit; equal ones share one.
func (g *Generation) cgroupBit(c CgroupCondition) (uint64, error) {
	i := slices.IndexFunc(g.Cgroups, func(o CgroupCondition) bool { return o.Any == c.Any && o.Equal(&c.Places) })
	if i < 0 {
		i = len(g.Cgroups)
		g.Cgroups = append(g.Cgroups, c)
	}
	if i >= 64 {
		return 0, fmt.Errorf("cgroup: more than 64 different lists in all rules together: use the same list in several rules")
	}
	return 1 << i, nil
}

// CgroupVerdict sets the bit of each condition that holds.
func (g *Generation) CgroupVerdict(at *rules.Place) uint64 {
	var bits uint64
	for i := range g.Cgroups {
		c := &g.Cgroups[i]
		if c.Any && c.Places.Any(at) || !c.Any && c.All(at) {
			bits |= 1 << i
		}
	}
	return bits
}

// NeedRuntime reports whether a condition is about what only a container runtime knows.
func (g *Generation) NeedRuntime() bool {
	return slices.ContainsFunc(g.Cgroups, func(c CgroupCondition) bool { return c.NeedRuntime() })
}

// Verdict sets the bit of each list that has a pattern which s matches.
func Verdict(lists [][]string, match func(pattern, s string) bool, s string) uint64 {
	var bits uint64
	for i, list := range lists {
		if slices.ContainsFunc(list, func(p string) bool { return match(p, s) }) {
			bits |= 1 << i
		}
	}
	return bits
}

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

func unsigned(list []int) []uint32 {
	out := make([]uint32, len(list))
	for i, v := range list {
		out[i] = uint32(v)
	}
	return out
}
