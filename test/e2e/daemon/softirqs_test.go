package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/test/support/cpus"
)

// TestManySoftirqs: on a machine full of packets, the hooks of softirqs are detached, their
// rules paused, and log, status and list say so. Rules for interrupts are not.
func TestManySoftirqs(t *testing.T) {
	needRoot(t)
	send := cpus.Packets(t)
	d := start(t, rulesFile(
		entry("soft", "softirq", "1h", "{phase: run}"),
		entry("hard", "irq", "1h", "{name: ['*']}"),
	), "--budget-softirqs", "0.01%")
	const part = "softirq hooks"
	isShed := func() bool {
		s := d.status().Cost
		return s != nil && slices.ContainsFunc(s.Shed, func(s api.ShedInfo) bool {
			return s.Part == part && s.Times > 0 && strings.Contains(s.Why, "budget.softirqs")
		})
	}
	for end := time.Now().Add(time.Minute); !isShed(); {
		assert.Assert(t, time.Now().Before(end), "the hooks of softirqs are attached still: %+v", d.status().Cost)
		for range 20_000 {
			send()
		}
	}
	assert.Check(t, d.log.count("too many softirqs for hooks") > 0, "the log says nothing of it")
	for _, r := range lines[api.RuleInfo](t, d.ok("list", "rules", "-o", "json")) {
		assert.Check(t, is.Equal(r.Name == "soft", r.Shed), r.Name)
	}
}
