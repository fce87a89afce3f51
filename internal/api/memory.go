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
	// forgotten is the number of the last one of each rule that was forgotten; of at most
	// maxForgotten rules.
	forgotten map[string]uint64
}

// maxForgotten bounds memory.forgotten: rules come and go with reloads.
const maxForgotten = 1024

// remembered is an outlier with its number in the order of arrival.
type remembered struct {
	*events.Outlier
	number   uint64
	finished bool // its snapshot is complete
}

func newMemory(keep int) *memory {
	return &memory{keep: max(keep, 1), rules: map[string][]remembered{}, forgotten: map[string]uint64{}}
}

// add remembers an outlier as the newest.
func (m *memory) add(o *events.Outlier) {
	m.added++
	m.rules[o.Rule] = append(m.rules[o.Rule], remembered{Outlier: o, number: m.added})
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
	if _, ok := m.forgotten[most]; !ok && len(m.forgotten) >= maxForgotten {
		clear(m.forgotten)
		m.forgotten[""] = m.added // any rule's
	}
	m.forgotten[most] = list[0].number
	list[0] = remembered{}
	m.count--
	if m.rules[most] = list[1:]; len(list) == 1 {
		delete(m.rules, most)
	}
}

// replace replaces the newest outlier for which is returns true with what by returns,
// unless that is nil. It reports whether there was such an outlier.
func (m *memory) replace(rule string, is func(*events.Outlier) bool, by func(*remembered) *events.Outlier) bool {
	list := m.rules[rule]
	for i := len(list) - 1; i >= 0; i-- {
		if !is(list[i].Outlier) {
			continue
		}
		if o := by(&list[i]); o != nil {
			list[i].Outlier = o
		}
		return true
	}
	return false
}

// list returns the outliers of a rule, or of all for "", in the order of arrival.
func (m *memory) list(rule string) []*events.Outlier {
	all := m.of(rule)
	found := make([]*events.Outlier, len(all))
	for i := range all {
		found[i] = all[i].Outlier
	}
	return found
}

// of is list with the numbers.
func (m *memory) of(rule string) []remembered {
	if rule != "" {
		return slices.Clone(m.rules[rule])
	}
	all := make([]remembered, 0, m.count)
	for _, list := range m.rules {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b remembered) int { return cmp.Compare(a.number, b.number) })
	return all
}

// forgottenAfter counts the outliers past a number that are no longer remembered, of all
// rules: those of one rule are not counted. It is 0 if a rule has lost none of its own.
func (m *memory) forgottenAfter(rule string, number uint64) uint64 {
	if rule != "" && max(m.forgotten[rule], m.forgotten[""]) <= number {
		return 0
	}
	still := uint64(0)
	for _, list := range m.rules {
		for i := range list {
			if list[i].number > number {
				still++
			}
		}
	}
	return m.added - min(number, m.added) - still
}
