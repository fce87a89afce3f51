package tracker

import "slices"

// ruleIDs gives each rule a number below maxRules that it keeps as long as it
// lives, in whichever generations: pending work, counters and limits go by it.
// A rule that comes back finds its number again, unless it was needed
// meanwhile: the numbers of vanished rules are given to others last, those
// that vanished first before the others.
type ruleIDs struct {
	of   map[string]uint8
	gone []string // has a number, but is not live; the longest first
}

// newID is a number that a rule gets.
type newID struct {
	id     uint8
	former string // the rule that had it; empty: none
}

// assign returns the numbers for the rules of one generation, at most maxRules
// names, and which of them are new. ids stays as it is.
func (ids *ruleIDs) assign(names []string) (after ruleIDs, fresh []newID) {
	after.of = make(map[string]uint8, len(names))
	var taken [maxRules]bool
	for name, id := range ids.of {
		after.of[name] = id
		taken[id] = true
		if !slices.Contains(names, name) && !slices.Contains(ids.gone, name) {
			after.gone = append(after.gone, name)
		}
	}
	slices.Sort(after.gone) // of those that vanish now none is before the others
	before := slices.DeleteFunc(slices.Clone(ids.gone), func(name string) bool { return slices.Contains(names, name) })
	after.gone = append(before, after.gone...)
	for _, name := range names {
		if _, known := after.of[name]; known {
			continue
		}
		n := newID{}
		if free := slices.Index(taken[:], false); free >= 0 {
			n.id = uint8(free)
		} else {
			n.former, after.gone = after.gone[0], after.gone[1:]
			n.id = after.of[n.former]
			delete(after.of, n.former)
		}
		taken[n.id] = true
		after.of[name] = n.id
		fresh = append(fresh, n)
	}
	return after, fresh
}
