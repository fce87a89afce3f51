package compile

import (
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Tracked is a floor that no delay reaches, but unlike abi.Never it lets work be tracked.
const Tracked = abi.Never - 1

// Floors holds, for each class of each tracker's work, the smallest limit in
// nanoseconds that any rule could apply to it.
type Floors struct {
	of [abi.Trackers][]uint64 // by number of the kind, and class (see kinds.Kind)

	ChainFrom   uint8 // where chains that any rule wants may begin (enum chain_from)
	WakerStacks bool  // a wakeup rule wants the stacks of wakers
}

// NewFloors takes, of each rule and override, whichever limit fires first at an
// exit. pairs are the numbers of declared pairs, by the names of their rules.
func NewFloors(list []*rules.Rule, pairs map[string]uint32) Floors {
	f := lowestLimits(list, pairs, func(l rules.Limits) uint64 {
		return min(LimitNS(l.Threshold), LimitNS(l.Timeout))
	})
	for _, r := range list {
		if r.Histogram != nil {
			f.lower(r, &r.When, pairs, Tracked)
		}
	}
	return f
}

// NewTimeouts takes the timeouts.
func NewTimeouts(list []*rules.Rule, pairs map[string]uint32) Floors {
	return lowestLimits(list, pairs, func(l rules.Limits) uint64 { return LimitNS(l.Timeout) })
}

func lowestLimits(list []*rules.Rule, pairs map[string]uint32, limit func(rules.Limits) uint64) Floors {
	var f Floors
	for n := range kinds.All {
		f.of[n] = slices.Repeat([]uint64{abi.Never}, kinds.All[n].Classes)
	}
	for _, r := range list {
		if r.Paused {
			continue
		}
		f.lower(r, &r.When, pairs, limit(rules.Limits{Threshold: r.Threshold, Timeout: r.Timeout}))
		for i := range r.Overrides {
			f.lower(r, &r.Overrides[i].When, pairs, limit(r.LimitsOf(i)))
		}
	}
	return f
}

// lower takes one limit: of the rule itself, or of an override, which both the
// rule's and its own conditions guard.
func (f *Floors) lower(r *rules.Rule, when *rules.Match, pairs map[string]uint32, ns uint64) {
	kind := kinds.Of(r.Track)
	floors := f.of[kind.Number]
	for class := range floors {
		if kind.InClass != nil && kind.InClass(class, &r.When) && kind.InClass(class, when) {
			floors[class] = min(floors[class], ns)
		}
	}
	if n, ok := pairs[r.Name]; ok && kind.InClass == nil {
		floors[n] = min(floors[n], ns)
	}
	switch r.Track {
	case rules.Wakeup:
		f.WakerStacks = f.WakerStacks || ns < Tracked && slices.Contains(r.Stacks, rules.WakerStack)
	case rules.Chain:
		f.ChainFrom |= kinds.ChainFrom(r.When.From)
	}
}

// Of are those of one tracker, by class.
func (f *Floors) Of(kind *kinds.Kind) []uint64 { return f.of[kind.Number] }

// Lowest is the smaller floor of both in every class.
func (f *Floors) Lowest(g *Floors) Floors {
	out := Floors{ChainFrom: f.ChainFrom | g.ChainFrom, WakerStacks: f.WakerStacks || g.WakerStacks}
	for n := range f.of {
		out.of[n] = slices.Clone(f.of[n])
		for class, ns := range g.of[n] {
			out.of[n][class] = min(out.of[n][class], ns)
		}
	}
	return out
}

// LeastOfTables is the lowest floor of each pending table (enum table_kind).
func (f *Floors) LeastOfTables() [abi.TimeoutTables]uint64 {
	var least [abi.TimeoutTables]uint64
	for table := range least {
		least[table] = abi.Never
		for n := range kinds.All {
			if table < abi.Tables && kinds.All[n].Table == &kinds.Tables[table] {
				least[table] = min(least[table], slices.Min(f.of[n]))
			}
		}
	}
	return least
}

// LeastOfInterrupts is the lowest floor of irq and softirq.
func (f *Floors) LeastOfInterrupts() uint64 {
	return min(slices.Min(f.of[abi.TrackIrq]), slices.Min(f.of[abi.TrackSoftirq]))
}
