package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/recorded"
)

func TestSwitchCircumstances(t *testing.T) {
	inGuest(t)
	recorded.MountCgroups(t)
	recorded.Switches(t, slowDisk)
}

func TestRecordedEvents(t *testing.T) {
	inGuest(t)
	recorded.MountCgroups(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"work", recorded.Work},
		{"faults", recorded.Faults},
		{"locks", recorded.Locks},
		{"power", recorded.Power},
		{"net", func(t *testing.T) {
			if err := loopbackUp(); err != nil {
				t.Fatal(err)
			}
			recorded.Net(t)
		}},
		{"throttle", recorded.Throttle},
		{"memcg", func(t *testing.T) { recorded.GroupReclaim(t, slowDisk) }},
		{"reclaim", recorded.Reclaim},
	} {
		t.Run(test.name, test.run)
	}
}
