package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestShed: see provoke.Shed.
func TestShed(t *testing.T) {
	provoke.Shed(t)
}
