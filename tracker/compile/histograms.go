package compile

import (
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kinds"
)

// Numbers of histograms: one a tracker first, then those of rules, of which
// spareHistograms are there for rules that come with a reload.
const (
	firstHistogram  = 16 // the Range of classes begin at multiples of it
	spareHistograms = 32
)

// Allotment says which histograms belong to what, by a key that a reload does not change.
type Allotment map[string]Range

// Range is a run of histograms.
type Range struct{ First, Count int }

// wantedHistogram is one run of histograms that a rule needs.
type wantedHistogram struct {
	key   string
	count int
	set   func(first int)
}

// HistogramSlots is where the histograms of a rule are.
type HistogramSlots struct {
	Own       int // of what is in no class
	Classes   Range
	Overrides []int            // one an override
	Spec      *rules.Histogram // nil: none at all
}

// wantedHistograms lists what the rules of c need, and prepares c to hold it.
func (g *Generation) wantedHistograms() []wantedHistogram {
	var list []wantedHistogram
	g.Histograms = make([]HistogramSlots, len(g.Rules))
	for i, r := range g.Sources {
		if r.Histogram == nil {
			continue
		}
		h := &g.Histograms[i]
		h.Spec = r.Histogram
		if r.Histogram.By == rules.NoClass && g.Rules[i].When.Fields == 0 && r.Track != rules.Pair {
			h.Own = kinds.Of(r.Track).Number // that of the tracker is the same, and costs nothing more
			continue
		}
		list = append(list, wantedHistogram{r.Name, 1, func(n int) { h.Own = n }})
		switch r.Histogram.By {
		case rules.NoClass:
		case rules.ByOverride:
			list = append(list, g.wantedOverrides(i, r, h)...)
		default:
			count := max(kinds.PowerOfTwo(r.Histogram.Classes), 16)
			list = append(list, wantedHistogram{
				fmt.Sprintf("%s/%s/%d", r.Name, r.Histogram.By, count), count,
				func(n int) { h.Classes = Range{n, count} },
			})
		}
	}
	return list
}

// wantedOverrides gives each override with a threshold of its own a histogram; the others have the rule's.
func (g *Generation) wantedOverrides(i int, r *rules.Rule, h *HistogramSlots) []wantedHistogram {
	var list []wantedHistogram
	h.Overrides = make([]int, len(r.Overrides))
	for j := range r.Overrides {
		o := &r.Overrides[j]
		if o.Threshold == 0 && o.Adaptive == nil && r.Adaptive != nil {
			h.Overrides[j] = -1
			continue
		}
		list = append(list, wantedHistogram{r.Name + "/override/" + OverrideClass(&o.When), 1, func(n int) { h.Overrides[j] = n }})
	}
	return list
}

// OverrideClass names an override by its conditions, which no two of a rule share to any effect.
func OverrideClass(when *rules.Match) string { return fmt.Sprintf("%+v", printable(when)) }

// printable is m without pointers, so that equal conditions print the same.
func printable(m *rules.Match) any {
	preempted := "any"
	if m.Preempted != nil {
		preempted = fmt.Sprint(*m.Preempted)
	}
	sector := "any"
	if m.Sector != nil {
		sector = fmt.Sprint(*m.Sector)
	}
	plain := *m
	plain.Preempted, plain.Sector = nil, nil
	return struct {
		rules.Match
		preempted, sector string
	}{plain, preempted, sector}
}

// Allot finds room for every histogram of c among stride Range. What was
// Allotment before keeps its place; the fresh runs are to be cleared.
func (g *Generation) Allot(before Allotment, stride int) (after Allotment, fresh []Range, err error) {
	after = Allotment{}
	taken := make([]bool, stride)
	take := func(n Range) {
		for i := n.First; i < n.First+n.Count; i++ {
			taken[i] = true
		}
	}
	take(Range{0, min(firstHistogram, stride)})
	for _, n := range before { // also those that are given up: a program may be at work with them still
		take(n)
	}
	wanted := g.wantedHistograms()
	slices.SortStableFunc(wanted, func(a, b wantedHistogram) int { return b.count - a.count })
	for _, w := range wanted {
		n, kept := before[w.key]
		if !kept {
			if n, err = room(taken, w.count); err != nil {
				return nil, nil, err
			}
			take(n)
			fresh = append(fresh, n)
		}
		if twice, ok := after[w.key]; ok { // two overrides with the same conditions: the second abi.Never applies
			n = twice
		}
		after[w.key] = n
		w.set(n.First)
	}
	for i := range g.Histograms {
		for j, n := range g.Histograms[i].Overrides {
			if n < 0 {
				g.Histograms[i].Overrides[j] = g.Histograms[i].Own
			}
		}
	}
	g.layHistograms()
	return after, fresh, nil
}

func room(taken []bool, count int) (Range, error) {
	step := 1
	if count > 1 {
		step = firstHistogram
	}
	for at := firstHistogram; at+count <= len(taken); at += step {
		if !slices.Contains(taken[at:at+count], true) {
			return Range{at, count}, nil
		}
	}
	return Range{}, fmt.Errorf("no room for more histograms: restart tailcam, which makes room for those of all its rules")
}

// HistogramsNeeded is how many histograms the rules need at most, with some to spare.
func HistogramsNeeded(list []rules.Rule) int {
	single, classes := 0, 0
	for i := range list {
		h := list[i].Histogram
		switch {
		case h == nil:
		case h.By == rules.ByOverride:
			single += 1 + len(list[i].Overrides)
		case h.By == rules.NoClass:
			single++
		default:
			single++
			classes += max(kinds.PowerOfTwo(h.Classes), 16)
		}
	}
	return (firstHistogram + classes + single + spareHistograms + 15) / 16 * 16
}

// Conditions that struct histogram_rule holds itself.
const matchCheap = abi.MatchThread | abi.MatchState | abi.MatchOp | abi.MatchPreempted | abi.MatchSyscall | abi.MatchNotSyscall

// Numbers of enum histogram_by.
var histogramBy = map[rules.Class]uint8{
	rules.NoClass: abi.ByNothing, rules.ByDevice: abi.ByDevice, rules.BySyscall: abi.BySyscall, rules.ByCgroup: abi.ByCgroup, rules.ByOverride: abi.ByOverride,
}

// layHistograms makes the kernel's table of rules with histograms.
func (g *Generation) layHistograms() {
	half := (g.Number & 1) * abi.MaxRules
	g.HistogramAt = map[int]uint32{}
	for n := range kinds.All {
		g.HistogramTable.First[n] = uint32(len(g.HistogramRules))
		for i := g.Table.First[n]; i < g.Table.First[n]+g.Table.Count[n]; i++ {
			h := &g.Histograms[i]
			if h.Spec == nil || h.Own < firstHistogram {
				continue
			}
			k, needs := g.histogramRule(int(i), h)
			k.Rule = half + i
			g.HistogramAt[int(i)] = uint32(len(g.HistogramRules))
			g.HistogramRules = append(g.HistogramRules, k)
			g.HistogramTable.Needs[n] |= needs
		}
		g.HistogramTable.Count[n] = uint32(len(g.HistogramRules)) - g.HistogramTable.First[n]
	}
}

func (g *Generation) histogramRule(i int, h *HistogramSlots) (abi.HistogramRule, uint32) {
	r, when := g.Sources[i], &g.Rules[i].When
	k := abi.HistogramRule{
		Own: uint32(h.Own), Rest: when.Fields &^ matchCheap,
		By:      histogramBy[h.Spec.By],
		Threads: when.Threads, States: when.States, Ops: when.Ops,
	}
	needs := needsOf(k.Rest)
	if when.Fields&abi.MatchPreempted != 0 {
		k.Preempted = 1 << when.Preempted
	}
	if when.Fields&(abi.MatchSyscall|abi.MatchNotSyscall) != 0 {
		needs |= abi.NeedCall
		k.SomeCalls, k.NoCall = 1, flag(len(r.When.Syscall) == 0)
		for nr := range abi.Syscalls {
			if kinds.Admits(r.When.Syscall, r.When.NotSyscall, nr) {
				k.Calls[nr/64] |= 1 << (nr % 64)
			}
		}
	}
	switch h.Spec.By {
	case rules.NoClass:
	case rules.ByOverride:
		for j, n := range h.Overrides {
			o := &g.Overrides[int(g.Rules[i].FirstOverride)+j]
			o.Histogram = uint32(n)
			needs |= needsOf(o.When.Fields)
		}
	default:
		k.Classes, k.ClassMask = uint32(h.Classes.First), uint32(h.Classes.Count/abi.BucketKeys-1)
		needs |= map[rules.Class]uint32{rules.ByDevice: abi.NeedDevice, rules.BySyscall: abi.NeedCall, rules.ByCgroup: abi.NeedCgroup}[h.Spec.By]
	}
	return k, needs
}

// needsOf is what match() reads for some conditions.
func needsOf(fields uint32) uint32 {
	var needs uint32
	for _, n := range []struct{ fields, need uint32 }{
		{abi.MatchComm | abi.MatchNotComm | abi.MatchUid | abi.MatchNotUid, abi.NeedTask},
		{abi.MatchCgroup | abi.MatchNotCgroup, abi.NeedCgroup},
		{abi.MatchSyscall | abi.MatchNotSyscall, abi.NeedCall},
		{abi.MatchDevice | abi.MatchNotDevice, abi.NeedDevice},
		{abi.MatchName | abi.MatchNotName, abi.NeedName},
	} {
		if fields&n.fields != 0 {
			needs |= n.need
		}
	}
	return needs
}
