package detect

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	injectors "github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// A table that is far too small grows while it is used: what it lost before is
// counted, nothing that was pending is lost, and afterwards there is room.
func TestGrowth(t *testing.T) {
	const held = 300 * time.Millisecond
	list := []rules.Rule{{
		Name: "call", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: threshold, Timeout: held / 6, When: rules.Match{Comm: []string{"inj-syscall"},
			Syscall: calls(t, "nanosleep", "clock_nanosleep")},
	}}
	c := watch(t, list, &tracker.Options{Syscalls: 64, MaxSyscalls: 8192, Buffer: 16 << 20}) // all of a wave at once
	const waves = 6
	for wave := range waves {
		before := c.counters().Trackers[rules.Syscall].TableFull
		n := c.read0()
		injected := injectors.Run(t, "syscall", "sleep", "1000", micros(held), "0", "1", "1000")
		c.arrived()
		lost := c.counters().Trackers[rules.Syscall].TableFull - before
		work := byWork(c.from(n))
		found, both := 0, 0
		for _, e := range injected {
			w := of(work, "call", e)
			if len(w.exits) == 1 {
				found++
			}
			if len(w.exits) == 1 && len(w.timeouts) == 1 {
				both++
			}
		}
		tables, err := c.kernel.Tables()
		assert.NilError(t, err)
		t.Logf("wave %d: of %d calls %d reported, %d of them timed out before, %d lost; tables %+v", wave, len(injected), found, both, lost, tables)
		// Threads end in calls of their own that are not injected; they may be lost, too.
		assert.Check(t, found+int(lost) >= len(injected) && found <= len(injected),
			"%d calls, %d reported, %d lost", len(injected), found, lost)
		assert.Check(t, wave != waves-1 || found == len(injected) && lost <= 0 && both == len(injected),
			"a grown table still loses: %d of %d reported, %d timed out, %d lost", found, len(injected), both, lost)
		assert.Check(t, wave != waves-1 || tables[0].Grown == 3 && tables[0].Slots >= 4096,
			"table %+v, want it grown three times", tables[0])
	}
	n := len(c.pending(rules.Syscall))
	assert.Check(t, n <= 50, "%d calls are still pending", n)
}

// Tasks keep their places over growth: those that were asleep before are found when they wake.
func TestGrowthOfTasks(t *testing.T) {
	const held = 300 * time.Millisecond
	c := watch(t, []rules.Rule{{
		Name: "asleep", Track: rules.OffCPU, Threshold: held / 2, When: rules.Match{Comm: []string{"inj-offcpu"}},
	}}, &tracker.Options{Tasks: 256, MaxTasks: 8192, Buffer: 16 << 20})
	for wave := range 3 {
		before := c.counters().Trackers[rules.OffCPU].TableFull
		n := c.read0()
		injected := injectors.Run(t, "offcpu", "sleep", "2000", micros(held), "0", "1", "2000")
		c.arrived()
		lost := int(c.counters().Trackers[rules.OffCPU].TableFull - before)
		work := byWork(c.from(n))
		found := 0
		for _, e := range injected {
			if len(of(work, "asleep", e).exits) == 1 {
				found++
			}
		}
		tables, err := c.kernel.Tables()
		assert.NilError(t, err)
		t.Logf("wave %d: of %d sleeps %d reported, %d entries lost; tables %+v", wave, len(injected), found, lost, tables)
		assert.Check(t, len(injected)-found-lost <= c.unseenOf(injected),
			"%d sleeps, %d reported, %d lost", len(injected), found, lost)
		assert.Check(t, wave != 2 || lost <= 0, "a grown table still loses %d", lost)
	}
}

// read0 is how much has been read so far.
func (c *camera) read0() int {
	c.arrived()
	return len(c.from(0))
}

// from is what was read after the first n, whatever was lost.
func (c *camera) from(n int) []*events.Outlier {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outliers[n:]
}
