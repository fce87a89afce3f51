package detect

import (
	"testing"

	"github.com/tailcam/tailcam/test/recorded"
)

// TestRecordedEvents provokes events of every group that this kernel has and
// that disturb nobody else; those of test/vm/guest are the others.
func TestRecordedEvents(t *testing.T) {
	needRoot(t)
	tape := recorded.Start(t, recorded.Groups())
	for _, test := range []struct {
		name string
		run  func(*testing.T, *recorded.Tape)
	}{
		{"switches", func(t *testing.T, tape *recorded.Tape) { recorded.Switches(t, tape, recorded.MakeDisk(t, 1<<20)) }},
		{"work", recorded.Work},
		{"faults", recorded.Faults},
		{"locks", recorded.Locks},
		{"power", recorded.Power},
		{"net", recorded.Net},
		{"memcg", func(t *testing.T, tape *recorded.Tape) { recorded.GroupReclaim(t, tape, recorded.MakeDisk(t, 32<<20)) }},
		{"steal", recorded.Steal},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, tape) })
	}
}
