package daemon

import (
	"testing"

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
	d.behind("softirq hooks", "budget.softirqs", func() {
		for range 20_000 {
			send()
		}
	})
	assert.Check(t, d.log.count("too many softirqs for hooks") > 0, "the log says nothing of it")
	for _, r := range lines[api.RuleInfo](t, d.ok("list", "rules", "-o", "json")) {
		assert.Check(t, is.Equal(r.Name == "soft", r.Shed), r.Name)
	}
}
