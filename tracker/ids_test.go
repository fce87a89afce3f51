package tracker

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A rule keeps its number while it lives, and finds it again when it comes back.
func TestRuleIDs(t *testing.T) {
	var ids ruleIDs
	check := func(names []string, want map[string]uint8, fresh ...newID) {
		t.Helper()
		after, got := ids.assign(names)
		if diff := cmp.Diff(fresh, got, cmp.AllowUnexported(newID{})); diff != "" {
			t.Errorf("%v: new numbers (-want +got):\n%s", names, diff)
		}
		for _, name := range names {
			if after.of[name] != want[name] {
				t.Errorf("%v: %s has number %d, want %d", names, name, after.of[name], want[name])
			}
		}
		ids = after
	}
	check([]string{"a", "b"}, map[string]uint8{"a": 0, "b": 1}, newID{0, ""}, newID{1, ""})
	check([]string{"b"}, map[string]uint8{"b": 1})
	check([]string{"c", "b"}, map[string]uint8{"b": 1, "c": 2}, newID{2, ""})
	check([]string{"c", "a", "b"}, map[string]uint8{"a": 0, "b": 1, "c": 2})
}

// When all numbers were given out, those that vanished first are given again.
func TestRuleIDsReused(t *testing.T) {
	var many []string
	for i := range maxRules {
		many = append(many, fmt.Sprintf("r%02d", i))
	}
	var none ruleIDs
	full, _ := none.assign(many)
	one, fresh := full.assign(append([]string{"new"}, many[:62]...)) // r62 and r63 vanish
	if want := []newID{{62, "r62"}}; fmt.Sprint(fresh) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", fresh, want)
	}
	later, _ := one.assign(many[1:62]) // r00 and new vanish after r63
	last, fresh := later.assign(append([]string{"x", "y"}, many[1:62]...))
	if want := []newID{{63, "r63"}, {62, "new"}}; fmt.Sprint(fresh) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", fresh, want)
	}
	if len(last.of) != maxRules || len(full.of) != maxRules || full.of["r62"] != 62 {
		t.Errorf("%d numbers in use, %d before", len(last.of), len(full.of))
	}
	if all, fresh := last.assign(many); len(all.of) != maxRules || len(fresh) != 2 {
		t.Errorf("%d numbers in use, %d of them new", len(all.of), len(fresh))
	}
}
