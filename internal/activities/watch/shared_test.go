package watch

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
)

// TestShared: what is known of processes alone is reported of those that have something.
func TestShared(t *testing.T) {
	w := newWorld(t, "")
	p, idle := w.add(4), w.add(4)
	h := accountsAt[abi.ActivityHeader](&p.maps, 0)
	h.MachineNs, h.Late = 3, 5
	h.Unknown[abi.ActivityWritebackBytes-abi.ActivitySyscalls] = 7
	w.Scan()
	list := w.Report(false).Shared
	assert.Equal(t, len(list), 1)
	s := list[0]
	assert.Check(t, s.PID == p.PID() && s.UID == p.UID() && s.Comm == "server" && s.MachineNS == 3 && s.Late == 5, "%+v", s)
	assert.DeepEqual(t, map[string]uint64(s.Values.ByName()), map[string]uint64{"writeback_bytes": 7})
	_, ok := SharedOf(idle)
	assert.Check(t, !ok)
	of, ok := SharedOf(p)
	assert.Check(t, ok && of.Late == 5)
}
