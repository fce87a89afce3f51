package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestTakeover: see provoke.Takeover.
func TestTakeover(t *testing.T) {
	provoke.Takeover(t, false, true) // 6.1 refuses to add a segment to a table
}
