package tracker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Sizes of the kernel side's tables (bpf/abi/abi.h).
const (
	maxRules     = 64
	maxOverrides = 256
	maxGlobs     = 512
	maxSyscalls  = 512
	commLen      = 16
	trackers     = 9
	tables       = 5
	recordSize   = 64
	progresses   = 512  // slow system calls whose progress is kept at once
	wakerStacks  = 8192 // threads on a run queue at once whose waker's stack is kept
)

// Bits of conditions.fields (bpf/abi/abi.h, enum match_field).
const (
	matchComm = 1 << iota
	matchNotComm
	matchPID
	matchNotPID
	matchUID
	matchNotUID
	matchCgroup
	matchNotCgroup
	matchSyscall
	matchNotSyscall
	matchDevice
	matchNotDevice
	matchOp
	matchState
	matchThread
	matchPreempted
	matchIRQ
	matchNotIRQ
	matchHandler
	matchNotHandler
	matchVector
	matchPhase
	matchCPU
	matchNotCPU
)

// The same of what chains have.
const (
	matchFrom = 1 << (24 + iota)
	matchEnd
	matchTID
	matchNotTID
	matchSector
	matchKey
	matchNotKey
)

// never is a floor that no delay reaches (bpf/state.h, NEVER).
const never = math.MaxInt64

// compiled is one generation of rules in the form of the kernel's tables.
type compiled struct {
	generation uint32
	table      bpf.TailcamRuleTable
	rules      []bpf.TailcamRule
	source     []*rules.Rule // of each entry of rules
	overrides  []bpf.TailcamOverride
	globs      []bpf.TailcamGlob
	keyGlobs   []bpf.TailcamKeyGlob
	sets       map[bpf.TailcamSetKey]struct{}
	cgroups    [][]string // pattern lists; the index is the bit in a verdict
	devices    [][]string
	handlers   [][]string
	floors     floors
	timeouts   floors
	nextSet    uint16

	histogramOf    []ruleHistogram // of each entry of rules
	histogramAt    map[int]uint32  // place in histogramRules of those that have one
	histogramRules []bpf.TailcamHistogramRule
	histogramTable bpf.TailcamHistogramTable
}

// trackIndex is the tracker's number in the kernel's tables (enum tracker_kind).
func trackIndex(t rules.Track) int { return slices.Index(rules.Tracks, t) }

// compile lays rules out for the kernel side. sets numbers must not clash with
// those of the generation that is live, so they continue from firstSet.
func compile(list []rules.Rule, generation uint32, firstSet uint16) (*compiled, error) {
	c := &compiled{
		generation: generation,
		sets:       map[bpf.TailcamSetKey]struct{}{},
		nextSet:    firstSet,
	}
	if len(list) > maxRules {
		return nil, fmt.Errorf("%d rules, but the kernel side holds %d: remove or merge some", len(list), maxRules)
	}
	for _, t := range rules.Tracks {
		n := trackIndex(t)
		c.table.First[n] = uint32(len(c.rules))
		for i := range list {
			if list[i].Track != t {
				continue
			}
			if err := c.addRule(&list[i]); err != nil {
				return nil, fmt.Errorf("rule %s: %w", list[i].Name, err)
			}
		}
		c.table.Count[n] = uint32(len(c.rules)) - c.table.First[n]
	}
	c.floors = newFloors(list)
	c.timeouts = newTimeoutFloors(list)
	return c, nil
}

func (c *compiled) addRule(r *rules.Rule) error {
	when, err := c.conditions(&r.When)
	if err != nil {
		return err
	}
	k := bpf.TailcamRule{
		ThresholdNs:   limitOf(r.Threshold),
		TimeoutNs:     limitOf(r.Timeout),
		RepeatNs:      uint64(r.Repeat.Nanoseconds()),
		Adaptive:      flag(r.Adaptive != nil),
		When:          when,
		FirstOverride: uint16(len(c.overrides)),
		Overrides:     uint16(len(r.Overrides)),
		Tracker:       uint8(trackIndex(r.Track)),
		KernelStack:   flag(slices.Contains(r.Stacks, rules.KernelStack)),
		UserStack:     flag(slices.Contains(r.Stacks, rules.UserStack)),
		Snapshot:      flag(r.Snapshot.Enabled),
		EveryNs:       uint64(r.Snapshot.Every.Nanoseconds()),
		Ratchet:       flag(r.Ratchet),
		Paused:        flag(r.Paused),
		Progress:      flag(slices.Contains(r.Stacks, rules.ProgressStacks)),
		AllowNs:       uint64(max(r.Snapshot.Burst-1, 0)) * uint64(r.Snapshot.Every.Nanoseconds()),
	}
	for i := range r.Overrides {
		when, err := c.conditions(&r.Overrides[i].When)
		if err != nil {
			return err
		}
		l := r.LimitsOf(i)
		o := &r.Overrides[i]
		c.overrides = append(c.overrides, bpf.TailcamOverride{
			Adaptive:    uint32(flag(o.Adaptive != nil || o.Threshold == 0 && r.Adaptive != nil)),
			ThresholdNs: limitOf(l.Threshold), TimeoutNs: limitOf(l.Timeout), When: when,
		})
	}
	if len(c.overrides) > maxOverrides {
		return fmt.Errorf("more than %d overrides in all rules together: remove some", maxOverrides)
	}
	c.rules = append(c.rules, k)
	c.source = append(c.source, r)
	return nil
}

// limitOf is a limit in the kernel's tables, where none is one that nothing reaches.
func limitOf(d time.Duration) uint64 {
	if d <= 0 {
		return never
	}
	return uint64(d.Nanoseconds())
}

func (c *compiled) conditions(m *rules.Match) (bpf.TailcamConditions, error) {
	var k bpf.TailcamConditions
	var err error
	set := func(bit uint32, on bool) bool {
		if on {
			k.Fields |= bit
		}
		return on
	}
	if set(matchComm, len(m.Comm) > 0) {
		if k.Comm, err = c.globRange(m.Comm); err != nil {
			return k, err
		}
	}
	if set(matchNotComm, len(m.NotComm) > 0) {
		if k.NotComm, err = c.globRange(m.NotComm); err != nil {
			return k, err
		}
	}
	if set(matchPID, len(m.PID) > 0) {
		k.PidSet = c.set(m.PID)
	}
	if set(matchNotPID, len(m.NotPID) > 0) {
		k.NotPidSet = c.set(m.NotPID)
	}
	if set(matchSector, m.Sector != nil) {
		k.FirstSector, k.LastSector = m.Sector.First, m.Sector.Last
	}
	if set(matchTID, len(m.TID) > 0) {
		k.TidSet = c.set(m.TID)
	}
	if set(matchNotTID, len(m.NotTID) > 0) {
		k.NotTidSet = c.set(m.NotTID)
	}
	if set(matchUID, len(m.UID) > 0) {
		k.UidSet = c.set(m.UID)
	}
	if set(matchNotUID, len(m.NotUID) > 0) {
		k.NotUidSet = c.set(m.NotUID)
	}
	if set(matchSyscall, len(m.Syscall) > 0) {
		k.SyscallSet = c.set(unsigned(m.Syscall))
	}
	if set(matchNotSyscall, len(m.NotSyscall) > 0) {
		k.NotSyscallSet = c.set(unsigned(m.NotSyscall))
	}
	for _, v := range []struct {
		bit  uint32
		list []string
		all  *[][]string
		mask *uint64
		what string
	}{
		{matchCgroup, m.Cgroup, &c.cgroups, &k.Cgroups, "cgroup"},
		{matchNotCgroup, m.NotCgroup, &c.cgroups, &k.NotCgroups, "cgroup"},
		{matchDevice, m.Device, &c.devices, &k.Devices, "device"},
		{matchNotDevice, m.NotDevice, &c.devices, &k.NotDevices, "device"},
		{matchHandler, m.Name, &c.handlers, &k.Handlers, "name"},
		{matchNotHandler, m.NotName, &c.handlers, &k.NotHandlers, "name"},
	} {
		if set(v.bit, len(v.list) > 0) {
			if *v.mask, err = verdictBit(v.all, v.list); err != nil {
				return k, fmt.Errorf("%s: %w", v.what, err)
			}
		}
	}
	set(matchOp, len(m.Op) > 0)
	for _, op := range m.Op {
		k.Ops |= 1 << opNumber(op)
	}
	set(matchState, len(m.State) > 0)
	for _, s := range m.State {
		k.States |= 1 << stateNumber(s)
	}
	set(matchThread, len(m.Thread) > 0)
	for _, t := range m.Thread {
		k.Threads |= 1 << threadNumber(t)
	}
	set(matchFrom, len(m.From) > 0)
	k.From = chainFrom(m.From)
	set(matchEnd, len(m.Ends) > 0)
	for _, e := range m.Ends {
		k.Ends |= 1 << slices.Index(rules.Ends, e)
	}
	if m.Preempted != nil {
		set(matchPreempted, true)
		k.Preempted = flag(*m.Preempted)
	}
	c.interruptConditions(m, &k)
	return k, c.spanConditions(m, &k)
}

func (c *compiled) globRange(patterns []string) (bpf.TailcamGlobRange, error) {
	r := bpf.TailcamGlobRange{First: uint16(len(c.globs)), Count: uint16(len(patterns))}
	for _, p := range patterns {
		if len(p) >= commLen {
			return r, fmt.Errorf("comm %q: at most %d bytes", p, commLen-1)
		}
		var g bpf.TailcamGlob
		for i := range len(p) {
			g.Pattern[i] = int8(p[i])
		}
		c.globs = append(c.globs, g)
	}
	if len(c.globs) > maxGlobs {
		return r, fmt.Errorf("more than %d comm patterns in all rules together: remove some", maxGlobs)
	}
	return r, nil
}

// set stores a list of numbers as members of a new set.
func (c *compiled) set(values []uint32) uint16 {
	c.nextSet++
	for _, v := range values {
		c.sets[bpf.TailcamSetKey{Set: uint32(c.nextSet), Value: v}] = struct{}{}
	}
	return c.nextSet
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

// verdict sets the bit of each list that has a pattern which s matches.
func verdict(lists [][]string, match func(pattern, s string) bool, s string) uint64 {
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

// Numbers of bits in the order of bpf/abi/abi.h.
func opNumber(op rules.Op) int {
	return slices.Index([]rules.Op{rules.Read, rules.Write, rules.Flush, rules.Discard, rules.Other}, op)
}

func stateNumber(s rules.State) int {
	return slices.Index([]rules.State{rules.Interruptible, rules.Uninterruptible, rules.OtherState}, s)
}

func threadNumber(t rules.Thread) int {
	return slices.Index([]rules.Thread{rules.UserThread, rules.KernelThread}, t)
}

// text turns a NUL-terminated C string into a Go one.
func text(c []int8) string {
	var b strings.Builder
	for _, ch := range c {
		if ch == 0 {
			break
		}
		b.WriteByte(byte(ch))
	}
	return b.String()
}
