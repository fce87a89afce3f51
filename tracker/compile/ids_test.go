package compile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// A rule keeps its number while it lives, and finds it again when it comes back.
func TestRuleIDs(t *testing.T) {
	var ids RuleIDs
	check := func(names []string, want map[string]uint8, fresh ...NewID) {
		t.Helper()
		after, got := ids.Assign(names)
		diff := cmp.Diff(fresh, got, cmp.AllowUnexported(NewID{}))
		assert.Check(t, diff == "", "%v: new numbers (-want +got):\n%s", names, diff)
		for _, name := range names {
			assert.Check(t, is.Equal(after.Of[name], want[name]), "%v: %s has number", names, name)
		}
		ids = after
	}
	check([]string{"a", "b"}, map[string]uint8{"a": 0, "b": 1}, NewID{0, ""}, NewID{1, ""})
	check([]string{"b"}, map[string]uint8{"b": 1})
	check([]string{"c", "b"}, map[string]uint8{"b": 1, "c": 2}, NewID{2, ""})
	check([]string{"c", "a", "b"}, map[string]uint8{"a": 0, "b": 1, "c": 2})
}

// When all numbers were given out, those that vanished first are given again.
func TestRuleIDsReused(t *testing.T) {
	var many []string
	for i := range abi.MaxRules {
		many = append(many, fmt.Sprintf("r%02d", i))
	}
	var none RuleIDs
	full, _ := none.Assign(many)
	one, fresh := full.Assign(append([]string{"new"}, many[:62]...)) // r62 and r63 vanish
	want := []NewID{{62, "r62"}}
	assert.Check(t, fmt.Sprint(fresh) == fmt.Sprint(want), "got %v, want %v", fresh, want)
	later, _ := one.Assign(many[1:62]) // r00 and new vanish after r63
	last, fresh := later.Assign(append([]string{"x", "y"}, many[1:62]...))
	want = []NewID{{63, "r63"}, {62, "new"}}
	assert.Check(t, fmt.Sprint(fresh) == fmt.Sprint(want), "got %v, want %v", fresh, want)
	assert.Check(t, len(last.Of) == abi.MaxRules && len(full.Of) == abi.MaxRules && full.Of["r62"] == 62,
		"%d numbers in use, %d before", len(last.Of), len(full.Of))
	all, fresh := last.Assign(many)
	assert.Check(t, len(all.Of) == abi.MaxRules && len(fresh) == 2,
		"%d numbers in use, %d of them new", len(all.Of), len(fresh))
}
