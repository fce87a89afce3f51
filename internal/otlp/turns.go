package otlp

import (
	"maps"
	"slices"
)

// turns holds what waits, shared by rules: each rule has its turn, and gives its oldest. It is
// not safe for concurrent use.
type turns[T any] struct {
	waiting map[string][]T // by rule; never empty
	last    string         // whose turn was the last
}

func (t *turns[T]) add(rule string, v T) {
	if t.waiting == nil {
		t.waiting = map[string][]T{}
	}
	t.waiting[rule] = append(t.waiting[rule], v)
}

// next is the rule whose turn it is; ok: something waits.
func (t *turns[T]) next() (rule string, ok bool) {
	if len(t.waiting) == 0 {
		return "", false
	}
	rules := slices.Sorted(maps.Keys(t.waiting))
	i, found := slices.BinarySearch(rules, t.last)
	if found {
		i++
	}
	return rules[i%len(rules)], true
}

// take removes the oldest of the rule whose turn it is.
func (t *turns[T]) take() (v T, ok bool) {
	rule, ok := t.next()
	if !ok {
		return v, false
	}
	t.last = rule
	return t.oldest(rule), true
}

// oldest removes the oldest of a rule that has some.
func (t *turns[T]) oldest(rule string) (v T) {
	var none T
	list := t.waiting[rule]
	v, list[0] = list[0], none
	if len(list) == 1 {
		delete(t.waiting, rule)
	} else {
		t.waiting[rule] = list[1:]
	}
	return v
}

// most is the rule for which weigh has the largest result; ok: something waits.
func (t *turns[T]) most(weigh func([]T) int64) (rule string, ok bool) {
	heaviest := int64(-1)
	for name, list := range t.waiting {
		if w := weigh(list); w > heaviest || w == heaviest && name < rule {
			heaviest, rule = w, name
		}
	}
	return rule, heaviest >= 0
}
