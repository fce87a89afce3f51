package detect

import (
	"testing"

	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestRecordedEvents provokes events of every group that this kernel has and
// that disturb nobody else; those of test/vm/guest are the others.
func TestRecordedEvents(t *testing.T) {
	needRoot(t)
	history := provoke.Start(t, provoke.Groups(), 0)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *provoke.History)
	}{
		{"switches", func(t *testing.T, history *provoke.History) { provoke.Switches(t, history, provoke.MakeDisk(t, 1<<20)) }},
		{"names", provoke.Names},
		{"work", provoke.Work},
		{"stacks", provoke.Stacks},
		{"served", provoke.Served},
		{"polled", provoke.Polled},
		{"ticks", provoke.Ticks},
		{"unseen", provoke.Unseen},
		{"faults", provoke.Faults},
		{"locks", provoke.Locks},
		{"spins", provoke.Spins},
		{"locks of files", provoke.FileLocks},
		{"power", provoke.Power},
		{"net", provoke.Net},
		{"tcp", provoke.TCP},
		{"memcg", func(t *testing.T, history *provoke.History) {
			provoke.GroupReclaim(t, history, provoke.MakeDisk(t, 32<<20))
		}},
		{"steal", provoke.Steal},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, history) })
	}
}
