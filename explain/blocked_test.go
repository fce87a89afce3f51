package explain

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestKernelWaits: what those wait for whom a kernel thread of this name wakes.
func TestKernelWaits(t *testing.T) {
	for comm, want := range map[string]Cause{
		"jbd2/vda-8": Journal, "xfs-cil/vda": Journal, "txg_sync": Journal, "btrfs-transacti": Journal, "kswapd0": Reclaim, "kcompactd0": Compaction,
		"btrfs-cleaner": "", "kworker/0:1": "", "my-jbd2/": "", "": "",
	} {
		assert.Check(t, kernelWait(comm) == want, "%s: %s", comm, kernelWait(comm))
	}
}
