package detect

import (
	"testing"

	"github.com/tailcam/tailcam/test/recorded"
)

func TestSwitchCircumstances(t *testing.T) {
	needRoot(t)
	recorded.Switches(t, recorded.MakeDisk(t, 1<<20))
}

func TestRecordedEvents(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"work", recorded.Work},
		{"faults", recorded.Faults},
		{"locks", recorded.Locks},
		{"power", recorded.Power},
		{"net", recorded.Net},
		{"memcg", func(t *testing.T) { recorded.GroupReclaim(t, recorded.MakeDisk(t, 32<<20)) }},
	} {
		t.Run(test.name, test.run)
	}
}
