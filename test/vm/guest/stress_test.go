package guest

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/stress"
)

// TestPendingTable holds the pending table to account on this kernel.
func TestPendingTable(t *testing.T) {
	inGuest(t)
	for name, o := range map[string]stress.Options{
		"full windows":      {Places: 1 << 8, Keys: 200, Workers: 8, Rounds: 60},
		"the scheduler too": {Places: 1 << 10, Keys: 100, Workers: 8, Rounds: 100, Schedule: true},
	} {
		a, err := stress.Run(o)
		assert.NilError(t, err)
		t.Logf("%s: %+v", name, a)
		assert.Check(t, a.Balance(), "%s", name)
		assert.Check(t, a.Stored >= 5000 && a.Interrupts != 0, "%s: hardly anything happened", name)
	}
}
