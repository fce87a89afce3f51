package pair

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// Extend returns the pairs of p and of q, which takes the place of those of p with the
// same name; Load and Attach then do what is new. p stays as it is until Drop.
func (p *Set) Extend(q *Set) (*Set, error) {
	if len(q.Numbers) == 0 {
		return p, nil
	}
	s := &Set{
		Numbers: maps.Clone(p.Numbers), Labels: maps.Clone(p.Labels), specs: maps.Clone(p.specs), failed: maps.Clone(p.failed),
		scratches: p.scratches, last: p.last,
	}
	for _, h := range p.hooks {
		if q.specs[h.rule] == nil {
			s.hooks = append(s.hooks, h)
		}
	}
	used := map[uint32]bool{} // also by those that q replaces, as they run on for now
	for _, n := range p.Numbers {
		used[n] = true
	}
	for _, name := range slices.Sorted(maps.Keys(q.specs)) {
		if len(used) >= abi.MaxPairs {
			return nil, fmt.Errorf("rule %s: no more than %d declared pairs can be attached at once, old and new", name, abi.MaxPairs)
		}
		for s.last = (s.last + 1) % abi.MaxPairs; used[s.last]; {
			s.last = (s.last + 1) % abi.MaxPairs
		}
		used[s.last] = true
		s.Numbers[name], s.specs[name], s.Labels[name] = s.last, q.specs[name], q.Labels[name]
		delete(s.failed, name)
	}
	for _, h := range q.hooks {
		h.wire.Pair = s.Numbers[h.rule]
		s.hooks = append(s.hooks, h)
	}
	return s, nil
}

// Without returns p without the pairs of rules that are not in list.
func (p *Set) Without(list []rules.Rule) *Set {
	wanted := func(rule string) bool {
		return slices.ContainsFunc(list, func(r rules.Rule) bool { return r.Name == rule && r.Track == rules.Pair })
	}
	s := *p
	s.Numbers, s.Labels, s.specs, s.failed = maps.Clone(p.Numbers), maps.Clone(p.Labels), maps.Clone(p.specs), maps.Clone(p.failed)
	s.hooks = slices.DeleteFunc(slices.Clone(p.hooks), func(h *hookProgram) bool { return !wanted(h.rule) })
	for rule := range p.specs {
		if !wanted(rule) {
			delete(s.Numbers, rule)
			delete(s.Labels, rule)
			delete(s.specs, rule)
			delete(s.failed, rule)
		}
	}
	return &s
}

// Drop detaches and unloads the hooks that p has and now has not.
func (p *Set) Drop(now *Set, k *kernel.Objects) error {
	if now.scratches == nil {
		now.scratches = p.scratches
	}
	var errs []error
	for _, role := range []int{abi.PairEntry, abi.PairCancel, abi.PairExit} {
		for _, h := range p.hooks {
			if h.role != role || h.jump == nil || slices.Contains(now.hooks, h) {
				continue
			}
			errs = append(errs, k.DetachProgram(h.jump.Program), h.jump.Close())
			if h.pin != "" {
				errs = append(errs, k.UnpinHook(h.pin))
			}
			h.jump = nil
		}
	}
	return errors.Join(errs...)
}

// prepare makes new pairs begin with nothing.
func (p *Set) prepare(k *kernel.Objects) error {
	for _, h := range p.hooks {
		if h.jump != nil {
			continue
		}
		for i := h.wire.Pair; i < k.Maps().PairStates.MaxEntries(); i += abi.MaxPairs {
			if err := k.Maps().PairStates.Put(i, abi.PairState{}); err != nil {
				return fmt.Errorf("clear the counters of rule %s: %w", h.rule, err)
			}
		}
	}
	return nil
}
