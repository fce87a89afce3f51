package guest

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// TestRecordedEvents provokes events of every group.
func TestRecordedEvents(t *testing.T) {
	inGuest(t)
	provoke.MountCgroups(t)
	assert.NilError(t, loopbackUp())
	history := provoke.Start(t, provoke.Groups(), 0)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *provoke.History)
	}{
		{"switches", func(t *testing.T, history *provoke.History) { provoke.Switches(t, history, slowDisk) }},
		{"names", provoke.Names},
		{"work", provoke.Work},
		{"stacks", provoke.Stacks},
		{"served", provoke.Served},
		{"polled", provoke.Polled},
		{"ticks", provoke.Ticks},
		{"unseen", provoke.Unseen},
		{"faults", func(t *testing.T, history *provoke.History) {
			if missing("/sys/kernel/tracing/events/exceptions/page_fault_user") {
				t.Skip("this kernel has no tracepoints of page faults")
			}
			provoke.Faults(t, history)
		}},
		{"locks", provoke.Locks},
		{"spins", func(t *testing.T, history *provoke.History) {
			if !missing("/sys/kernel/realtime") {
				t.Skip("locks that spin elsewhere sleep on this kernel")
			}
			provoke.Spins(t, history)
		}},
		{"locks of files", provoke.FileLocks},
		{"power", provoke.Power},
		{"net", provoke.Net},
		{"tcp", provoke.TCP},
		{"throttle", func(t *testing.T, history *provoke.History) {
			needFunctions(t) // there is no tracepoint
			provoke.Throttle(t, history)
		}},
		{"memcg", func(t *testing.T, history *provoke.History) { provoke.GroupReclaim(t, history, slowDisk) }},
		{"reclaim", provoke.Reclaim},
		{"guests", func(t *testing.T, history *provoke.History) {
			loadKVM(t)
			provoke.Guests(t, history)
		}},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, history) })
	}
}

// loadKVM loads KVM's half that knows the emulated processor; the other one,
// with the tracepoints, is there from the beginning.
func loadKVM(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("what the guest's guest runs is x86 code")
	}
	cfg, err := boot.ReadConfig()
	assert.NilError(t, err)
	err = cfg.Load("kvm_amd")
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("KVM of a real-time kernel wants a time stamp counter that never stops: the emulator has none")
	}
	assert.NilError(t, err)
}
