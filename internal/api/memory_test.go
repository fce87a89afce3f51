package api

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/tracker/events"
)

// No rule's outliers are forgotten for another's while it has no more than its share.
func TestMemoryIsShared(t *testing.T) {
	f := NewFeed(DefaultRemember)
	for i := range 216 {
		f.Publish(outlier("rare", int64(i)))
	}
	for i := range 100_000 {
		f.Publish(outlier("noisy", int64(i)))
	}
	assert.Check(t, is.Len(f.Recent("rare"), 216))
	assert.Check(t, is.Len(f.Recent("noisy"), DefaultRemember-216))
	assert.Check(t, f.Recent("noisy")[0].DelayNS == 100_000-(DefaultRemember-216), "not the newest are kept")

	for i := range 3 * DefaultRemember {
		f.Publish(outlier(fmt.Sprint("noisy", i%9), int64(i)))
	}
	assert.Check(t, is.Len(f.Recent(""), DefaultRemember))
	share := DefaultRemember / 11 // rare, noisy, and nine more
	for _, rule := range []string{"rare", "noisy", "noisy0", "noisy8"} {
		n := len(f.Recent(rule))
		assert.Check(t, n >= share && n <= share+1, "%s has %d of %d, want about %d", rule, n, DefaultRemember, share)
	}
	assert.Check(t, f.Recent("rare")[0].DelayNS > 0, "the oldest is kept")

	for i := range 2 * DefaultRemember { // more rules than there is room for
		f.Publish(outlier(fmt.Sprint("rule", i), int64(i)))
	}
	assert.Check(t, is.Len(f.Recent(""), DefaultRemember))
	assert.Check(t, len(f.memory.rules) <= DefaultRemember, "rules without outliers are remembered")
}

// Outliers of all rules come in the order of their arrival.
func TestMemoryOrder(t *testing.T) {
	f := NewFeed(50)
	for i := range 1000 {
		f.Publish(outlier([]string{"a", "b", "c"}[i*i%3], int64(i)))
	}
	all := f.Recent("")
	assert.Assert(t, is.Len(all, 50))
	for i := 1; i < len(all); i++ {
		assert.Check(t, all[i-1].DelayNS < all[i].DelayNS, "number %d", i)
	}
}

// A verdict on an outlier that was forgotten comes, and is on no other.
func TestVerdictOnForgotten(t *testing.T) {
	f := NewFeed(2)
	f.earlyFor = time.Millisecond
	sub, err := f.Subscribe("manual", "")
	assert.NilError(t, err)
	id := "snapshot"
	o := outlier("a", 1)
	o.Snapshot = &id
	f.Publish(o)
	for range 5 {
		f.Publish(outlier("a", 2))
	}
	done := *o
	done.Explained = &events.Explained{Verdict: "late"}
	f.Finish("/snapshots/one", []events.Outlier{done})
	for _, o := range f.Recent("") {
		assert.Check(t, o.Explained == nil)
	}
	again, err := f.Subscribe("a", f.run+".6.0")
	assert.NilError(t, err)
	if len(again.Backlog) == 0 {
		again.Backlog = append(again.Backlog, <-again.Outliers)
	}
	late := again.Backlog[0]
	assert.Check(t, late.Finished && late.Dir == "/snapshots/one" && late.Explained.Verdict == "late", "%+v", late)
	assert.Check(t, is.Len(sub.Outliers, 0))
}
