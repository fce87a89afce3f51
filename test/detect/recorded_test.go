package detect

import (
	"testing"

	"github.com/tailcam/tailcam/test/recorded"
)

func TestSwitchCircumstances(t *testing.T) {
	needRoot(t)
	recorded.Switches(t, recorded.MakeDisk(t))
}
