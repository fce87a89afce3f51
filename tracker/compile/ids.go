package compile

import (
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// RuleIDs gives each rule a number below abi.MaxRules that it keeps as long as it
// lives, in whichever generations: pending work, counters and limits go by it.
// A rule that comes back finds its number again, unless it was needed
// meanwhile: the numbers of vanished rules are given to others last, those
// that vanished first before the others.
type RuleIDs struct {
	Of   map[string]uint8
	Gone []string // has a number, but is not live; the longest first
}

// NewID is a number that a rule gets.
type NewID struct {
	ID     uint8
	Former string // the rule that had it; empty: none
}

// Assign returns the numbers for the rules of one generation, at most abi.MaxRules
// names, and which of them are new. ids stays as it is.
func (ids *RuleIDs) Assign(names []string) (after RuleIDs, fresh []NewID) {
	after.Of = make(map[string]uint8, len(names))
	var taken [abi.MaxRules]bool
	for name, id := range ids.Of {
		after.Of[name] = id
		taken[id] = true
		if !slices.Contains(names, name) && !slices.Contains(ids.Gone, name) {
			after.Gone = append(after.Gone, name)
		}
	}
	slices.Sort(after.Gone) // of those that vanish now none is before the others
	before := slices.DeleteFunc(slices.Clone(ids.Gone), func(name string) bool { return slices.Contains(names, name) })
	after.Gone = append(before, after.Gone...)
	for _, name := range names {
		if _, known := after.Of[name]; known {
			continue
		}
		n := NewID{}
		if free := slices.Index(taken[:], false); free >= 0 {
			n.ID = uint8(free)
		} else {
			n.Former, after.Gone = after.Gone[0], after.Gone[1:]
			n.ID = after.Of[n.Former]
			delete(after.Of, n.Former)
		}
		taken[n.ID] = true
		after.Of[name] = n.ID
		fresh = append(fresh, n)
	}
	return after, fresh
}
