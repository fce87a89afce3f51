package daemon

import (
	"runtime"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cpus"
)

// TestManyLocks: where CPUs contend for locks of the kernel all the time, the hooks at these are
// detached, and log and status say so.
func TestManyLocks(t *testing.T) {
	needRoot(t)
	if runtime.NumCPU() == 1 {
		t.Skip("needs two CPUs")
	}
	d := start(t, rulesFile(entry("wakeup", "wakeup", "1h", "{thread: user}")), "--budget-locks", "0.01%")
	d.behind("lock hooks", "budget.locks", func() { cpus.Contend(t, func(int) {}) })
	assert.Check(t, d.log.count("too many contended locks") > 0, "the log says nothing of it")
}
