package guest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/recorded"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// TestRecordedEvents provokes events of every group.
func TestRecordedEvents(t *testing.T) {
	inGuest(t)
	recorded.MountCgroups(t)
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	tape := recorded.Start(t, recorded.Groups())
	for _, test := range []struct {
		name string
		run  func(*testing.T, *recorded.Tape)
	}{
		{"switches", func(t *testing.T, tape *recorded.Tape) { recorded.Switches(t, tape, slowDisk) }},
		{"work", recorded.Work},
		{"faults", recorded.Faults},
		{"locks", recorded.Locks},
		{"power", recorded.Power},
		{"net", recorded.Net},
		{"throttle", recorded.Throttle},
		{"memcg", func(t *testing.T, tape *recorded.Tape) { recorded.GroupReclaim(t, tape, slowDisk) }},
		{"reclaim", recorded.Reclaim},
		{"guests", func(t *testing.T, tape *recorded.Tape) {
			loadKVM(t)
			recorded.Guests(t, tape)
		}},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, tape) })
	}
}

// loadKVM loads KVM's half that knows the emulated processor; the other one,
// with the tracepoints, is there from the beginning.
func loadKVM(t *testing.T) {
	t.Helper()
	f, err := os.Open(boot.Module{Name: "kvm_amd"}.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("KVM of a real-time kernel wants a time stamp counter that never stops: the emulator has none")
	}
	if err != nil {
		t.Fatal(err)
	}
}
