// Package compile turns rules into the tables that the kernel side matches with.
// It calls no kernel.
package compile

import (
	"fmt"
	"slices"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Generation is one set of rules in the form of the kernel side's tables.
type Generation struct {
	Number    uint32
	Table     abi.RuleTable
	Rules     []abi.Rule
	Sources   []*rules.Rule // of each entry of Rules
	Overrides []abi.Override
	Globs     []abi.Glob
	KeyGlobs  []abi.KeyGlob
	Sets      map[abi.SetKey]struct{}
	Cgroups   []CgroupCondition // the index is the bit in a verdict
	Devices   [][]string        // pattern lists; the index is the bit in a verdict
	Names     [][]string        // of interrupt handlers and work queues
	Functions [][]string
	Floors    Floors
	Timeouts  Floors
	NextSet   uint16 // the next generation's sets begin after it

	Histograms     []HistogramSlots // of each entry of Rules
	HistogramAt    map[int]uint32   // index in HistogramRules of those that have one
	HistogramRules []abi.HistogramRule
	HistogramTable abi.HistogramTable
}

// New lays rules out for the kernel side. The numbers of sets must not clash
// with those of the current generation, so they continue from firstSet. pairs
// are the numbers of declared pairs, by the names of their rules.
func New(list []rules.Rule, number uint32, firstSet uint16, pairs map[string]uint32) (*Generation, error) {
	g := &Generation{Number: number, Sets: map[abi.SetKey]struct{}{}, NextSet: firstSet}
	if len(list) > abi.MaxRules {
		return nil, fmt.Errorf("%d rules, but the kernel side holds %d: remove or merge some", len(list), abi.MaxRules)
	}
	for n := range kinds.All {
		g.Table.First[n] = uint32(len(g.Rules))
		for i := range list {
			if list[i].Track != kinds.All[n].Track {
				continue
			}
			if err := g.addRule(&list[i]); err != nil {
				return nil, fmt.Errorf("rule %s: %w", list[i].Name, err)
			}
		}
		g.Table.Count[n] = uint32(len(g.Rules)) - g.Table.First[n]
	}
	g.Floors, g.Timeouts = NewFloors(g.Sources, pairs), NewTimeouts(g.Sources, pairs)
	return g, nil
}

func (g *Generation) addRule(r *rules.Rule) error {
	when, err := g.conditions(&r.When)
	if err != nil {
		return err
	}
	k := abi.Rule{
		ThresholdNs:   LimitNS(r.Threshold),
		TimeoutNs:     LimitNS(r.Timeout),
		RepeatNs:      uint64(r.Repeat.Nanoseconds()),
		Adaptive:      flag(r.Adaptive != nil),
		When:          when,
		FirstOverride: uint16(len(g.Overrides)),
		Overrides:     uint16(len(r.Overrides)),
		Tracker:       uint8(kinds.Of(r.Track).Number),
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
		when, err := g.conditions(&r.Overrides[i].When)
		if err != nil {
			return err
		}
		l := r.LimitsOf(i)
		o := &r.Overrides[i]
		g.Overrides = append(g.Overrides, abi.Override{
			Adaptive:    uint32(flag(o.Adaptive != nil || o.Threshold == 0 && r.Adaptive != nil)),
			ThresholdNs: LimitNS(l.Threshold), TimeoutNs: LimitNS(l.Timeout), When: when,
		})
	}
	if len(g.Overrides) > abi.MaxOverrides {
		return fmt.Errorf("more than %d overrides in all rules together: remove some", abi.MaxOverrides)
	}
	g.Rules = append(g.Rules, k)
	g.Sources = append(g.Sources, r)
	return nil
}

// LimitNS is a limit in the kernel side's tables, where none is one that nothing reaches.
func LimitNS(d time.Duration) uint64 {
	if d <= 0 {
		return abi.Never
	}
	return uint64(d.Nanoseconds())
}
