package tracker

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// A place whose thread is gone is freed; those of living threads are not.
func TestReclaim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads the kernel side")
	}
	tr, err := New([]rules.Rule{{Name: "r", Track: rules.OffCPU, Threshold: time.Hour}}, nil)
	assert.NilError(t, err)
	defer tr.Close()

	dead := exec.Command("true")
	assert.NilError(t, dead.Run())
	// Not attached: only what is put there stands in the table.
	gone, alive := uint64(dead.Process.Pid), uint64(os.Getpid())
	keys := tr.Maps().TaskKeys
	for _, tid := range []uint64{gone, alive} {
		at := uint32(tid>>3) & (keys.MaxEntries() - 1) // bpf/lib/pending.h, numbered
		var b abi.Bucket
		assert.NilError(t, keys.Lookup(at, &b))
		b.Key[tid&7] = tid
		assert.NilError(t, keys.Put(at, b))
	}
	n, err := tr.Reclaim()
	assert.Assert(t, err == nil && n == 1, "reclaimed %d, %v; want 1", n, err)
	left, err := tr.PendingKeys(rules.OffCPU)
	assert.Check(t, err == nil && slices.Equal(left, []uint64{alive}),
		"left %v, %v; want %d alone", left, err, alive)
	c, err := tr.Counters()
	assert.Check(t, err == nil && c.Reclaimed == 1, "counted %d, %v; want 1", c.Reclaimed, err)
}
