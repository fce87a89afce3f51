package rules

import (
	"slices"
	"testing"
)

// TestShippedRules: what is shipped loads on a machine with any disks, and
// the rules that run by default cover the four main trackers.
func TestShippedRules(t *testing.T) {
	rules, err := Load([]string{"../configs/rules.d"}, testMachine{})
	if err != nil {
		t.Fatal(err)
	}
	more, err := Load([]string{"../configs/rules.more"}, testMachine{})
	if err != nil {
		t.Fatal(err)
	}
	if len(more) == 0 {
		t.Error("no optional rules")
	}
	for _, track := range []Track{Wakeup, OffCPU, Syscall, Block} {
		if !slices.ContainsFunc(rules, func(r Rule) bool { return r.Track == track }) {
			t.Errorf("no rule of track %s", track)
		}
	}
}
