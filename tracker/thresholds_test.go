package tracker

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
)

// kernelThresholds reads what the kernel side compares with.
func kernelThresholds(t *testing.T, k *Tracker) (rule, override, floor uint64) {
	t.Helper()
	generation, _, err := k.Adaptives()
	assert.NilError(t, err)
	half := generation & 1
	var r abi.Rule
	assert.NilError(t, k.Maps().Rules.Lookup(half*abi.MaxRules, &r))
	var o abi.Override
	assert.NilError(t, k.Maps().Overrides.Lookup(half*abi.MaxOverrides, &o))
	var floors [8]uint64
	assert.NilError(t, k.Vars.FloorBlock.Get(&floors))
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
	assert.Assert(t, err == nil && len(all) == 2 && all[0].Override == OwnThreshold && all[1].Override == 0,
		"adaptive thresholds: %v, %+v", err, all)
	tune := func(generation uint32, own, override time.Duration) error {
		return k.Retune(generation, []Tuning{{Rule: "follows", Override: OwnThreshold, Threshold: own}, {Rule: "follows", Threshold: override}})
	}
	assert.NilError(t, tune(generation, 5*time.Millisecond, 2*time.Millisecond))
	want("tuned", 5e6, 2e6, 2e6)
	assert.Check(t, list[0].Threshold == 0 && list[0].Overrides[0].Threshold == 0,
		"the caller's rules have changed")

	// A reload with another ceiling.
	tight := *spec
	tight.Ceiling = 3 * time.Millisecond
	list[0].Adaptive = &tight
	assert.NilError(t, k.Swap(list))
	want("reloaded", 3e6, 2e6, 2e6)
	assert.Check(t, is.ErrorIs(tune(generation, time.Second, time.Second), ErrStale), "tuning rules that are gone")
	want("after a tuning of rules that are gone", 3e6, 2e6, 2e6)

	generation, _, err = k.Adaptives()
	assert.NilError(t, err)
	assert.NilError(t, tune(generation, 0, 9*time.Millisecond))
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
	assert.Check(t, k.Swap([]rules.Rule{wants}) != nil, "a rule with a histogram is taken")
	h, err := k.Histograms()
	assert.Check(t, err == nil && len(h.Rules)+len(h.Trackers) == 0, "histograms: %v, %+v", err, h)
}
