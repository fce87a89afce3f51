package rules

import "testing"

// TestShippedRules: what is shipped loads on a machine with any disks, and
// covers each tracker.
func TestShippedRules(t *testing.T) {
	rules, err := Load([]string{"../configs/rules.d"}, testHost{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[Track]int)
	for i := range rules {
		seen[rules[i].Track]++
	}
	for _, track := range Tracks {
		if seen[track] == 0 {
			t.Errorf("no rule of track %s", track)
		}
	}
}
