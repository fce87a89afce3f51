package detect

import (
	"testing"

	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestTakeover: see provoke.Takeover.
func TestTakeover(t *testing.T) {
	needRoot(t)
	provoke.Takeover(t, true)
}
