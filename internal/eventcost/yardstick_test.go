package eventcost

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
)

// TestSpeed: this machine reads its clock and works in some time that is not absurd.
func TestSpeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs BPF programs")
	}
	s, err := Speed()
	assert.NilError(t, err)
	t.Logf("%+v", s)
	assert.Check(t, s.ClockNS > 0.1 && s.WorkNS > 0.1, "%+v", s)
}
