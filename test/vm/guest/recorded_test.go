package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/recorded"
)

// TestRecordedEvents provokes events of every group.
func TestRecordedEvents(t *testing.T) {
	inGuest(t)
	recorded.MountCgroups(t)
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	tape := recorded.Start(t, recorded.Groups())
	for _, test := range []struct {
		name string
		run  func(*testing.T, *recorded.Tape)
	}{
		{"switches", func(t *testing.T, tape *recorded.Tape) { recorded.Switches(t, tape, slowDisk) }},
		{"work", recorded.Work},
		{"faults", recorded.Faults},
		{"locks", recorded.Locks},
		{"power", recorded.Power},
		{"net", recorded.Net},
		{"throttle", recorded.Throttle},
		{"memcg", func(t *testing.T, tape *recorded.Tape) { recorded.GroupReclaim(t, tape, slowDisk) }},
		{"reclaim", recorded.Reclaim},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, tape) })
	}
}
