package daemon

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
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
	const part = "lock hooks"
	isShed := func() bool {
		s := d.status().Cost
		return s != nil && slices.ContainsFunc(s.Shed, func(s api.ShedInfo) bool {
			return s.Part == part && s.Times > 0 && strings.Contains(s.Why, "budget.locks")
		})
	}
	for end := time.Now().Add(time.Minute); !isShed(); {
		assert.Assert(t, time.Now().Before(end), "the hooks of contended locks are attached still: %+v", d.status().Cost)
		cpus.Contend(t, func(int) {})
	}
	assert.Check(t, d.log.count("too many contended locks") > 0, "the log says nothing of it")
}
