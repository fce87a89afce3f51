package adaptive

import (
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/install"
)

// table stands for the rules of the kernel side: it claims nothing about what that does with them.
type table struct {
	generation uint32
	list       []install.Adaptive
	tuned      int
	stale      bool
	broken     error
}

func (k *table) Adaptives() (uint32, []install.Adaptive, error) {
	return k.generation, append([]install.Adaptive(nil), k.list...), k.broken
}

func (k *table) Retune(generation uint32, list []install.Tuning) error {
	if k.stale || generation != k.generation {
		return install.ErrStale
	}
	for _, n := range list {
		for i := range k.list {
			if k.list[i].Rule == n.Rule && k.list[i].Override == n.Override {
				k.list[i].Threshold = n.Threshold
				k.tuned++
			}
		}
	}
	return nil
}

func TestController(t *testing.T) {
	spec := rules.Adaptive{Quantile: 0.99, Times: 2, Floor: time.Microsecond, Ceiling: time.Hour, Window: time.Minute, MinSamples: 1000}
	k := &table{list: []install.Adaptive{
		{Rule: "a", Override: install.OwnThreshold, Spec: spec},
		{Rule: "a", Override: 1, Class: "reads", Spec: spec},
	}}
	c := NewController(k)
	now := time.Unix(1000, 0)
	tick := func() {
		t.Helper()
		now = now.Add(time.Second)
		assert.NilError(t, c.Tick(now))
	}
	near := func(what string, got, want time.Duration) {
		t.Helper()
		assert.Check(t, got >= want*7/8 && got <= want*9/8, "%s: %v, want about %v", what, got, want)
	}
	_, ok := c.State("a", "")
	assert.Check(t, !ok, "a state before the first tick")
	k.list[0].Seen.Add(5_000_000, 2000)
	k.list[1].Seen.Add(1_000_000, 10)
	tick()
	near("the rule's own", k.list[0].Threshold, 10*time.Millisecond)
	assert.Check(t, k.list[1].Threshold == 0 && k.tuned == 1,
		"the override has %v after %d changes", k.list[1].Threshold, k.tuned)
	s, ok := c.State("a", "reads")
	assert.Check(t, ok && s.Samples == 10 && s.Threshold == 0, "the override's state: %+v", s)

	// What moves by less than is known is left alone.
	k.list[0].Seen.Add(5_050_000, 50)
	tick()
	assert.Check(t, k.tuned == 1, "%d changes for one per cent", k.tuned)

	// Replaced meanwhile: the next tick does it.
	k.list[0].Seen.Add(50_000_000, 5000)
	k.stale = true
	tick()
	near("not changed", k.list[0].Threshold, 10*time.Millisecond)
	k.stale = false
	tick()
	near("changed", k.list[0].Threshold, 100*time.Millisecond)

	// A reload changes the times, and puts the rule elsewhere: what was seen stays.
	k.generation++
	k.list[0].Spec.Times = 4
	k.list[0], k.list[1] = k.list[1], k.list[0]
	tick()
	near("four times", k.list[1].Threshold, 200*time.Millisecond)
	s, _ = c.State("a", "")
	assert.Check(t, s.Samples == 7050, "after a reload there are %d samples", s.Samples)

	k.broken = errors.New("no such map")
	assert.Check(t, is.ErrorIs(c.Tick(now), k.broken), "an error of the kernel side")
	k.broken, k.list = nil, nil
	tick()
	_, ok = c.State("a", "")
	assert.Check(t, !ok, "a state of a rule that is gone")
}
