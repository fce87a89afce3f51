package rules

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// TestShippedRules: what is shipped loads on a machine with any disks, and
// the rules that run by default cover the four main trackers.
func TestShippedRules(t *testing.T) {
	rules, err := Load([]string{"../configs/rules.d"}, testMachine{})
	assert.NilError(t, err)
	more, err := Load([]string{"../configs/rules.more"}, testMachine{})
	assert.NilError(t, err)
	assert.Check(t, len(more) != 0, "no optional rules")
	for _, track := range []Track{Wakeup, OffCPU, Syscall, Block} {
		assert.Check(t, slices.ContainsFunc(rules, func(r Rule) bool { return r.Track == track }),
			"no rule of track %s", track)
	}
}
