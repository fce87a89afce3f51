package api

import (
	"cmp"
	"slices"

	"github.com/tailcam/tailcam/tracker/events"
)

// memory holds the latest outliers, at most keep of all rules together. When it is
// full, the rule that has most of it loses its oldest: no rule can make it forget those
// of a rule that has less than an equal share.
type memory struct {
	keep  int
	count int
	added uint64 // number of the last one
	rules map[string][]remembered
}

// remembered is an outlier with its number in the order of arrival.
type remembered struct {
	*events.Outlier
	number uint64
}

func newMemory(keep int) *memory {
	return &memory{keep: max(keep, 1), rules: map[string][]remembered{}}
}

// add remembers an outlier as the newest.
func (m *memory) add(o *events.Outlier) {
	m.added++
	m.rules[o.Rule] = append(m.rules[o.Rule], remembered{o, m.added})
	if m.count++; m.count > m.keep {
		m.forgetOne()
	}
}

// forgetOne forgets the oldest outlier of the rule with most of them; among equals, of
// the rule with the older one.
func (m *memory) forgetOne() {
	var most string
	for rule, list := range m.rules {
		largest := m.rules[most]
		if len(list) > len(largest) || len(list) == len(largest) && list[0].number < largest[0].number {
			most = rule
		}
	}
	list := m.rules[most]
	list[0] = remembered{}
	m.count--
	if m.rules[most] = list[1:]; len(list) == 1 {
		delete(m.rules, most)
	}
}

// replace replaces the newest outlier for which is returns true with what by returns,
// unless that is nil. It reports whether there was such an outlier.
func (m *memory) replace(rule string, is func(*events.Outlier) bool, by func(*events.Outlier) *events.Outlier) bool {
	list := m.rules[rule]
	for i := len(list) - 1; i >= 0; i-- {
		if !is(list[i].Outlier) {
			continue
		}
		if o := by(list[i].Outlier); o != nil {
			list[i].Outlier = o
		}
		return true
	}
	return false
}

// list returns the outliers of a rule, or of all for "", in the order of arrival.
func (m *memory) list(rule string) []*events.Outlier {
	var all []remembered
	if rule != "" {
		all = m.rules[rule]
	} else {
		all = make([]remembered, 0, m.count)
		for _, list := range m.rules {
			all = append(all, list...)
		}
		slices.SortFunc(all, func(a, b remembered) int { return cmp.Compare(a.number, b.number) })
	}
	found := make([]*events.Outlier, len(all))
	for i := range all {
		found[i] = all[i].Outlier
	}
	return found
}
