package catalog

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/snapshot"
)

// TestWithoutShed: a history without context switches covers nothing.
func TestWithoutShed(t *testing.T) {
	list := []explain.Interval{{From: 10, To: 20}, {From: 30, To: 40}}
	sched := func(from, to uint64) snapshot.ShedPart {
		return snapshot.ShedPart{Part: "group sched", FromMonoNS: from, ToMonoNS: to}
	}
	for _, tt := range []struct {
		shed []snapshot.ShedPart
		want []explain.Interval
	}{
		{nil, list},
		{[]snapshot.ShedPart{{Part: "group irq", FromMonoNS: 0, ToMonoNS: 100}}, list},
		{[]snapshot.ShedPart{sched(20, 30)}, list},
		{[]snapshot.ShedPart{sched(12, 14)}, []explain.Interval{{From: 10, To: 12}, {From: 14, To: 20}, {From: 30, To: 40}}},
		{[]snapshot.ShedPart{sched(15, 35), sched(38, 50)}, []explain.Interval{{From: 10, To: 15}, {From: 35, To: 38}}},
		{[]snapshot.ShedPart{sched(0, 100)}, nil},
	} {
		assert.Check(t, is.DeepEqual(tt.want, withoutShed(list, tt.shed)), "%+v", tt.shed)
	}
}
