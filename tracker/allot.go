package tracker

import (
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Numbers of histograms: one a tracker first, then those of rules, of which
// spareHistograms are there for rules that come with a reload.
const (
	firstHistogram  = 16 // the numbers of classes begin at multiples of it
	spareHistograms = 32
)

// allotted says which histograms belong to what, by a key that a reload does not change.
type allotted map[string]numbers

// numbers is a run of histograms.
type numbers struct{ first, count int }

// wantedHistogram is one run of histograms that a rule needs.
type wantedHistogram struct {
	key   string
	count int
	set   func(first int)
}

// ruleHistogram is where a rule's histogram is; the index is that of the rule in compiled.
type ruleHistogram struct {
	own       int // of what is in no class; 0 and a nil by: none at all
	classes   numbers
	overrides []int // one an override
	spec      *rules.Histogram
}

// wantedHistograms lists what the rules of c need, and prepares c to hold it.
func (c *compiled) wantedHistograms() []wantedHistogram {
	var list []wantedHistogram
	c.histogramOf = make([]ruleHistogram, len(c.rules))
	for i, r := range c.source {
		if r.Histogram == nil {
			continue
		}
		h := &c.histogramOf[i]
		h.spec = r.Histogram
		if r.Histogram.By == rules.NoClass && c.rules[i].When.Fields == 0 && r.Track != rules.Pair {
			h.own = trackIndex(r.Track) // that of the tracker is the same, and costs nothing more
			continue
		}
		list = append(list, wantedHistogram{r.Name, 1, func(n int) { h.own = n }})
		switch r.Histogram.By {
		case rules.NoClass:
		case rules.ByOverride:
			list = append(list, c.wantedOverrides(i, r, h)...)
		default:
			count := max(powerOfTwo(r.Histogram.Classes), 16)
			list = append(list, wantedHistogram{
				fmt.Sprintf("%s/%s/%d", r.Name, r.Histogram.By, count), count,
				func(n int) { h.classes = numbers{n, count} },
			})
		}
	}
	return list
}

// wantedOverrides gives each override with a threshold of its own a histogram; the others have the rule's.
func (c *compiled) wantedOverrides(i int, r *rules.Rule, h *ruleHistogram) []wantedHistogram {
	var list []wantedHistogram
	h.overrides = make([]int, len(r.Overrides))
	for j := range r.Overrides {
		o := &r.Overrides[j]
		if o.Threshold == 0 && o.Adaptive == nil && r.Adaptive != nil {
			h.overrides[j] = -1
			continue
		}
		list = append(list, wantedHistogram{r.Name + "/override/" + OverrideClass(&o.When), 1, func(n int) { h.overrides[j] = n }})
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

// allot finds room for every histogram of c among stride numbers. What was
// allotted before keeps its place; the fresh runs are to be cleared.
func (c *compiled) allot(before allotted, stride int) (after allotted, fresh []numbers, err error) {
	after = allotted{}
	taken := make([]bool, stride)
	take := func(n numbers) {
		for i := n.first; i < n.first+n.count; i++ {
			taken[i] = true
		}
	}
	take(numbers{0, min(firstHistogram, stride)})
	for _, n := range before { // also those that are given up: a program may be at work with them still
		take(n)
	}
	wanted := c.wantedHistograms()
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
		if twice, ok := after[w.key]; ok { // two overrides with the same conditions: the second never applies
			n = twice
		}
		after[w.key] = n
		w.set(n.first)
	}
	for i := range c.histogramOf {
		for j, n := range c.histogramOf[i].overrides {
			if n < 0 {
				c.histogramOf[i].overrides[j] = c.histogramOf[i].own
			}
		}
	}
	c.layHistograms()
	return after, fresh, nil
}

func room(taken []bool, count int) (numbers, error) {
	step := 1
	if count > 1 {
		step = firstHistogram
	}
	for at := firstHistogram; at+count <= len(taken); at += step {
		if !slices.Contains(taken[at:at+count], true) {
			return numbers{at, count}, nil
		}
	}
	return numbers{}, fmt.Errorf("no room for more histograms: restart tailcam, which makes room for those of all its rules")
}

// histogramsNeeded is how many numbers the rules need at most, with some to spare.
func histogramsNeeded(list []rules.Rule) int {
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
			classes += max(powerOfTwo(h.Classes), 16)
		}
	}
	return (firstHistogram + classes + single + spareHistograms + 15) / 16 * 16
}

// Conditions that struct histogram_rule holds itself.
const matchCheap = matchThread | matchState | matchOp | matchPreempted | matchSyscall | matchNotSyscall

// What rules with histograms must know of an event (enum histogram_need).
const (
	needTask = 1 << iota
	needCgroup
	needCall
	needDevice
	needHandler
)

// Numbers of enum histogram_by.
var histogramBy = []rules.Class{rules.NoClass, rules.ByDevice, rules.BySyscall, rules.ByCgroup, rules.ByOverride}

// layHistograms makes the kernel's table of rules with histograms.
func (c *compiled) layHistograms() {
	half := (c.generation & 1) * maxRules
	c.histogramAt = map[int]uint32{}
	for n := range rules.Tracks {
		c.histogramTable.First[n] = uint32(len(c.histogramRules))
		for i := c.table.First[n]; i < c.table.First[n]+c.table.Count[n]; i++ {
			h := &c.histogramOf[i]
			if h.spec == nil || h.own < firstHistogram {
				continue
			}
			k, needs := c.histogramRule(int(i), h)
			k.Rule = half + i
			c.histogramAt[int(i)] = uint32(len(c.histogramRules))
			c.histogramRules = append(c.histogramRules, k)
			c.histogramTable.Needs[n] |= needs
		}
		c.histogramTable.Count[n] = uint32(len(c.histogramRules)) - c.histogramTable.First[n]
	}
}

func (c *compiled) histogramRule(i int, h *ruleHistogram) (bpf.TailcamHistogramRule, uint32) {
	r, when := c.source[i], &c.rules[i].When
	k := bpf.TailcamHistogramRule{
		Own: uint32(h.own), Rest: when.Fields &^ matchCheap,
		By:      uint8(slices.Index(histogramBy, h.spec.By)),
		Threads: when.Threads, States: when.States, Ops: when.Ops,
	}
	needs := needsOf(k.Rest)
	if when.Fields&matchPreempted != 0 {
		k.Preempted = 1 << when.Preempted
	}
	if when.Fields&(matchSyscall|matchNotSyscall) != 0 {
		needs |= needCall
		k.SomeCalls, k.NoCall = 1, flag(len(r.When.Syscall) == 0)
		for nr := range maxSyscalls {
			if admits(r.When.Syscall, r.When.NotSyscall, nr) {
				k.Calls[nr/64] |= 1 << (nr % 64)
			}
		}
	}
	switch h.spec.By {
	case rules.NoClass:
	case rules.ByOverride:
		for j, n := range h.overrides {
			o := &c.overrides[int(c.rules[i].FirstOverride)+j]
			o.Histogram = uint32(n)
			needs |= needsOf(o.When.Fields)
		}
	default:
		k.Classes, k.ClassMask = uint32(h.classes.first), uint32(h.classes.count/8-1)
		needs |= map[rules.Class]uint32{rules.ByDevice: needDevice, rules.BySyscall: needCall, rules.ByCgroup: needCgroup}[h.spec.By]
	}
	return k, needs
}

// needsOf is what match() reads for some conditions.
func needsOf(fields uint32) uint32 {
	var needs uint32
	for _, n := range []struct{ fields, need uint32 }{
		{matchComm | matchNotComm | matchUID | matchNotUID, needTask},
		{matchCgroup | matchNotCgroup, needCgroup},
		{matchSyscall | matchNotSyscall, needCall},
		{matchDevice | matchNotDevice, needDevice},
		{matchHandler | matchNotHandler, needHandler},
	} {
		if fields&n.fields != 0 {
			needs |= n.need
		}
	}
	return needs
}
