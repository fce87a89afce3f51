package guest

import (
	"testing"

	"github.com/tailcam/tailcam/test/recorded"
)

func TestSwitchCircumstances(t *testing.T) {
	inGuest(t)
	recorded.MountCgroups(t)
	recorded.Switches(t, slowDisk)
}
