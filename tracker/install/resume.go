package install

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
)

// kept is what the next daemon needs to know of a generation: the kernel side knows rules
// by their numbers only.
type kept struct {
	Number    uint32
	FirstSet  uint16
	NextSet   uint16
	Names     []string // of the rules, as in compile.Generation.Sources
	IDs       compile.RuleIDs
	Allotment compile.Allotment
}

// keep keeps a generation that is about to be installed.
func (r *Rules) keep(g *compile.Generation, firstSet uint16, ids compile.RuleIDs, allotment compile.Allotment) error {
	k := kept{Number: g.Number, FirstSet: firstSet, NextSet: g.NextSet, IDs: ids, Allotment: allotment}
	for _, rule := range g.Sources {
		k.Names = append(k.Names, rule.Name)
	}
	return r.kernel.KeepRules(g.Number, &k)
}

// mostLeap is how many generations Resume leaves out at most.
const mostLeap = 1 << 16

// Resume goes on where an earlier daemon has ended, before the first Swap: rules that are
// in list keep their numbers, counters and histograms, and outliers that it has not read
// are understood. Those of other rules are counted as stale.
func (r *Rules) Resume(list []rules.Rule) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var number uint32
	if err := r.kernel.Vars.Generation.Get(&number); err != nil {
		return fmt.Errorf("read the generation of rules: %w", err)
	}
	var now, before kept
	if err := r.kernel.KeptRules(number, &now); err != nil {
		return err
	}
	if now.Number != number || len(now.Names) > abi.MaxRules {
		return fmt.Errorf("what is kept is of generation %d of the rules, not %d", now.Number, number)
	}
	g, err := r.resumed(&now, list)
	if err != nil {
		return err
	}
	// The other half has the one before, or one that did not come to be.
	if err := r.kernel.KeptRules(number-1, &before); err == nil && before.Number < number && len(before.Names) <= abi.MaxRules {
		r.replaced = append(r.replaced, &compile.Generation{Number: before.Number, Sources: sources(before.Names, list)})
	}
	r.current, r.list, r.ids, r.allotment, r.inherited = g, list, now.IDs, now.Allotment, number
	// What the daemon had written of a next generation must not be taken for ours. An even
	// number keeps to the half of the tables that is not current.
	r.leap = 2 * (1 + rand.Uint32N(mostLeap)) //nolint:gosec // needs to be another number, not a secret one
	return nil
}

// resumed is a generation as far as it is still needed.
func (r *Rules) resumed(k *kept, list []rules.Rule) (*compile.Generation, error) {
	g := &compile.Generation{Number: k.Number, NextSet: k.NextSet, Sources: sources(k.Names, list), Sets: map[abi.SetKey]struct{}{}}
	known := slices.DeleteFunc(slices.Clone(g.Sources), func(rule *rules.Rule) bool { return rule == nil })
	g.Floors, g.Timeouts = compile.NewFloors(known, r.opts.Pairs), compile.NewTimeouts(known, r.opts.Pairs)
	g.Rules = make([]abi.Rule, len(k.Names))
	for i, name := range k.Names {
		id, ok := k.IDs.Of[name]
		if !ok || id >= abi.MaxRules {
			return nil, fmt.Errorf("what is kept has no number for rule %q", name)
		}
		g.Rules[i].Id = id
	}
	var key abi.SetKey
	var member uint8
	var strange []abi.SetKey
	each := r.kernel.Maps().Sets.Iterate()
	for each.Next(&key, &member) {
		if key.Set > uint32(k.FirstSet) && key.Set <= uint32(k.NextSet) {
			g.Sets[key] = struct{}{}
		} else {
			strange = append(strange, key)
		}
	}
	for _, key := range strange { // of a generation that did not come to be, or is gone
		_ = r.kernel.Maps().Sets.Delete(key) // nothing else removes it
	}
	if err := each.Err(); err != nil {
		return nil, fmt.Errorf("read the lists of rules: %w", err)
	}
	return g, nil
}

// sources finds rules by their names; nil: it is gone.
func sources(names []string, list []rules.Rule) []*rules.Rule {
	found := make([]*rules.Rule, len(names))
	for i, name := range names {
		if at := slices.IndexFunc(list, func(rule rules.Rule) bool { return rule.Name == name }); at >= 0 {
			found[i] = &list[at]
		}
	}
	return found
}

// Inherited counts outliers of rules that an earlier daemon had installed, and that it had
// not read.
func (r *Rules) Inherited() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unread
}
