package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestShed: see provoke.Shed.
func TestShed(t *testing.T) {
	inGuest(t)
	provoke.Shed(t)
}
