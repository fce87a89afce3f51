package compile

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// Rules keep their histograms over reloads; those of rules that went are given away, but not at once.
func TestAllot(t *testing.T) {
	rule := func(name string, h *rules.Histogram, overrides ...rules.Override) rules.Rule {
		return rules.Rule{
			Name: name, Track: rules.Block, Threshold: time.Second, Histogram: h, Overrides: overrides,
			When: rules.Match{Op: []rules.Op{rules.Read}},
		}
	}
	yes := true
	over := func(uid uint32) rules.Override {
		return rules.Override{When: rules.Match{UID: []uint32{uid}, Preempted: &yes}, Threshold: time.Millisecond}
	}
	allot := func(before Allotment, stride int, list ...rules.Rule) (Allotment, []Range, *Generation) {
		t.Helper()
		c, err := New(list, 1, 0, nil)
		assert.NilError(t, err)
		after, fresh, err := c.Allot(before, stride)
		assert.NilError(t, err)
		used := map[int]string{}
		for key, n := range after {
			for i := n.First; i < n.First+n.Count; i++ {
				assert.Check(t, i >= firstHistogram && i < stride, "%s has number %d of %d", key, i, stride)
				assert.Check(t, used[i] == "", "%s and %s share number %d", key, used[i], i)
				used[i] = key
			}
		}
		return after, fresh, c
	}
	one := rule("one", &rules.Histogram{})
	split := rule("split", &rules.Histogram{By: rules.ByDevice, Classes: 17})
	over1 := rule("over", &rules.Histogram{By: rules.ByOverride}, over(1), over(2))
	stride := HistogramsNeeded([]rules.Rule{one, split, over1})
	first, fresh, c := allot(nil, stride, one, split, over1)
	assert.Assert(t, len(first) == 6 && len(fresh) == 6,
		"%d runs of histograms, %d fresh; want 6", len(first), len(fresh))
	h := c.Histograms[1]
	assert.Check(t, h.Classes.Count == 32 && h.Classes.First%16 == 0, "17 classes have %+v", h.Classes)
	assert.Check(t, c.Overrides[0].Histogram != c.Overrides[1].Histogram, "two overrides share a histogram")

	// The order changes, one override goes, another comes.
	over2 := rule("over", &rules.Histogram{By: rules.ByOverride}, over(3), over(2))
	second, fresh, _ := allot(first, stride, over2, split)
	assert.Check(t, len(fresh) == 1, "%d fresh, want 1", len(fresh))
	for key, n := range second {
		was, ok := first[key]
		assert.Check(t, !ok || was == n, "%s has moved from %+v to %+v", key, was, n)
	}
	third, fresh, _ := allot(second, stride, one, split, over2)
	assert.Check(t, len(fresh) == 1 && len(third) == 6, "%d fresh of %d", len(fresh), len(third))

	// No room: an error, and no change.
	var many []rules.Rule
	for i := range 40 {
		many = append(many, rule(string(rune('a'+i)), &rules.Histogram{}))
	}
	many[0].Name = "zz"
	full, err := New(many, 1, 0, nil)
	assert.NilError(t, err)
	_, _, err = full.Allot(nil, HistogramsNeeded(nil))
	assert.Check(t, err != nil, "40 histograms in 32 places")

	// A rule about everything has its tracker's.
	all := rules.Rule{Name: "all", Track: rules.Syscall, Threshold: time.Second, Histogram: &rules.Histogram{}}
	whole, _, c := allot(nil, stride, all)
	assert.Check(t, len(whole) == 0 && c.Histograms[0].Own == abi.TrackSyscall && len(c.HistogramRules) == 0,
		"a rule without conditions has %+v", c.Histograms[0])
}
