package tracker

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/histogram"
)

// needKernel loads the kernel side for rules, without attaching it.
func needKernel(t *testing.T, list []rules.Rule, opts *Options) *Tracker {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	k, err := New(list, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// The kernel side puts every value into the bucket that Go looks for it in.
func TestBucketsOfTheKernelSide(t *testing.T) {
	k := needKernel(t, nil, nil)
	program := k.objects.Programs["histogram_bucket"]
	check := func(v uint64) {
		t.Helper()
		got, err := program.Run(&ebpf.RunOptions{Context: struct{ Value uint64 }{v}})
		if err != nil {
			t.Fatal(err)
		}
		if want := histogram.Index(v); int(got) != want {
			t.Errorf("%d is in bucket %d, in Go %d", v, got, want)
		}
	}
	for i := range histogram.Buckets { // both edges of every bucket, so all values next to one
		low, high := histogram.Bounds(i)
		check(low)
		check(high)
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for range 20000 {
		check(r.Uint64() >> r.IntN(64))
	}
}

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
	allot := func(before allotted, stride int, list ...rules.Rule) (allotted, []numbers, *compiled) {
		t.Helper()
		c, err := compile(list, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		after, fresh, err := c.allot(before, stride)
		if err != nil {
			t.Fatal(err)
		}
		used := map[int]string{}
		for key, n := range after {
			for i := n.first; i < n.first+n.count; i++ {
				if i < firstHistogram || i >= stride {
					t.Errorf("%s has number %d of %d", key, i, stride)
				}
				if used[i] != "" {
					t.Errorf("%s and %s share number %d", key, used[i], i)
				}
				used[i] = key
			}
		}
		return after, fresh, c
	}
	one := rule("one", &rules.Histogram{})
	split := rule("split", &rules.Histogram{By: rules.ByDevice, Classes: 17})
	over1 := rule("over", &rules.Histogram{By: rules.ByOverride}, over(1), over(2))
	stride := histogramsNeeded([]rules.Rule{one, split, over1})
	first, fresh, c := allot(nil, stride, one, split, over1)
	if len(first) != 6 || len(fresh) != 6 {
		t.Fatalf("%d runs of histograms, %d fresh; want 6", len(first), len(fresh))
	}
	if h := c.histogramOf[1]; h.classes.count != 32 || h.classes.first%16 != 0 {
		t.Errorf("17 classes have %+v", h.classes)
	}
	if c.overrides[0].Histogram == c.overrides[1].Histogram {
		t.Error("two overrides share a histogram")
	}

	// The order changes, one override goes, another comes.
	over2 := rule("over", &rules.Histogram{By: rules.ByOverride}, over(3), over(2))
	second, fresh, _ := allot(first, stride, over2, split)
	if len(fresh) != 1 {
		t.Errorf("%d fresh, want 1", len(fresh))
	}
	for key, n := range second {
		if was, ok := first[key]; ok && was != n {
			t.Errorf("%s has moved from %+v to %+v", key, was, n)
		}
	}
	third, fresh, _ := allot(second, stride, one, split, over2)
	if len(fresh) != 1 || len(third) != 6 {
		t.Errorf("%d fresh of %d", len(fresh), len(third))
	}

	// No room: an error, and no change.
	var many []rules.Rule
	for i := range 40 {
		many = append(many, rule(string(rune('a'+i)), &rules.Histogram{}))
	}
	many[0].Name = "zz"
	full, err := compile(many, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := full.allot(nil, histogramsNeeded(nil)); err == nil {
		t.Error("40 histograms in 32 places")
	}

	// A rule about everything has its tracker's.
	all := rules.Rule{Name: "all", Track: rules.Syscall, Threshold: time.Second, Histogram: &rules.Histogram{}}
	whole, _, c := allot(nil, stride, all)
	if len(whole) != 0 || c.histogramOf[0].own != trackIndex(rules.Syscall) || len(c.histogramRules) != 0 {
		t.Errorf("a rule without conditions has %+v", c.histogramOf[0])
	}
}
