package tracker

import (
	"errors"
	"testing"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
)

// kernelThresholds reads what the kernel side compares with.
func kernelThresholds(t *testing.T, k *Tracker) (rule, override, floor uint64) {
	t.Helper()
	generation, _, err := k.Adaptives()
	if err != nil {
		t.Fatal(err)
	}
	half := generation & 1
	var r abi.Rule
	if err := k.Maps.Rules.Lookup(half*abi.MaxRules, &r); err != nil {
		t.Fatal(err)
	}
	var o abi.Override
	if err := k.Maps.Overrides.Lookup(half*abi.MaxOverrides, &o); err != nil {
		t.Fatal(err)
	}
	var floors [8]uint64
	if err := k.Vars.FloorBlock.Get(&floors); err != nil {
		t.Fatal(err)
	}
	return r.ThresholdNs, o.ThresholdNs, floors[0]
}

// A threshold that is changed is in the rule, in its override and in the
// floor, stays over a reload, and is never set on rules that it was not for.
func TestRetune(t *testing.T) {
	spec := &rules.Adaptive{Quantile: 0.99, Times: 2, Floor: time.Millisecond, Ceiling: time.Second, Window: time.Minute, MinSamples: 100}
	list := []rules.Rule{{
		Name: "follows", Track: rules.Block, Adaptive: spec, Histogram: &rules.Histogram{By: rules.ByOverride},
		Overrides: []rules.Override{{When: rules.Match{Op: []rules.Op{rules.Read}}, Adaptive: spec}},
	}}
	k := needKernel(t, list, nil)
	want := func(what string, rule, override, floor uint64) {
		t.Helper()
		if r, o, f := kernelThresholds(t, k); r != rule || o != override || f != floor {
			t.Errorf("%s: the rule has %d, the override %d, the floor is %d; want %d, %d, %d", what, r, o, f, rule, override, floor)
		}
	}
	want("at first", abi.Never, abi.Never, compile.Tracked)

	generation, all, err := k.Adaptives()
	if err != nil || len(all) != 2 || all[0].Override != OwnThreshold || all[1].Override != 0 {
		t.Fatalf("adaptive thresholds: %v, %+v", err, all)
	}
	tune := func(generation uint32, own, override time.Duration) error {
		return k.Retune(generation, []Tuning{{Rule: "follows", Override: OwnThreshold, Threshold: own}, {Rule: "follows", Threshold: override}})
	}
	if err := tune(generation, 5*time.Millisecond, 2*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	want("tuned", 5e6, 2e6, 2e6)
	if list[0].Threshold != 0 || list[0].Overrides[0].Threshold != 0 {
		t.Error("the caller's rules have changed")
	}

	// A reload with another ceiling.
	tight := *spec
	tight.Ceiling = 3 * time.Millisecond
	list[0].Adaptive = &tight
	if err := k.Swap(list); err != nil {
		t.Fatal(err)
	}
	want("reloaded", 3e6, 2e6, 2e6)
	if err := tune(generation, time.Second, time.Second); !errors.Is(err, ErrStale) {
		t.Errorf("tuning rules that are gone: %v", err)
	}
	want("after a tuning of rules that are gone", 3e6, 2e6, 2e6)

	generation, _, err = k.Adaptives()
	if err != nil {
		t.Fatal(err)
	}
	if err := tune(generation, 0, 9*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	want("its own is quiet", abi.Never, 9e6, 9e6)
	if err := k.Retune(generation, []Tuning{{Rule: "nobody", Override: OwnThreshold, Threshold: time.Second}}); err == nil {
		t.Error("tuned a rule that is not there")
	}
}

// Without histograms rules that need them are refused, before and after.
func TestNoHistograms(t *testing.T) {
	plain := rules.Rule{Name: "plain", Track: rules.Block, Threshold: time.Second}
	k := needKernel(t, []rules.Rule{plain}, &Options{NoHistograms: true})
	wants := plain
	wants.Histogram = &rules.Histogram{}
	if err := k.Swap([]rules.Rule{wants}); err == nil {
		t.Error("a rule with a histogram is taken")
	}
	h, err := k.Histograms()
	if err != nil || len(h.Rules)+len(h.Trackers) != 0 {
		t.Errorf("histograms: %v, %+v", err, h)
	}
}
