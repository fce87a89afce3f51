package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestTakeover: see provoke.Takeover.
func TestTakeover(t *testing.T) {
	inGuest(t)
	provoke.Takeover(t, false, true, false) // 6.1 refuses to add a segment to a table
}

// TestTakeoverPrograms: the same by a daemon that needs other programs.
func TestTakeoverPrograms(t *testing.T) {
	inGuest(t)
	provoke.Takeover(t, false, true, true)
}
