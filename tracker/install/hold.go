package install

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/compile"
	"github.com/tailcam/tailcam/tracker/kernel"
)

// Hold pauses the rules with these names, and no others that it paused before,
// beside those whose Paused is set. It holds them over Swap, too.
// Pausing takes effect at once, and in place: their delays end at the floor.
func (r *Rules) Hold(names []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(map[string]bool, len(names))
	for _, n := range names {
		held[n] = true
	}
	before := r.held
	resumed := ""
	for name := range before {
		if !held[name] {
			resumed = name
			if err := r.allowFew(name); err != nil {
				return fmt.Errorf("resume rule %s: %w", name, err)
			}
		}
	}
	r.held = held
	if resumed == "" {
		return r.pauseHeld()
	}
	// Timeouts must be looked for in what is pending already: a new generation makes it so.
	if err := r.installLocked(r.list); err != nil {
		r.held = before
		return fmt.Errorf("resume rule %s: %w", resumed, err)
	}
	return nil
}

// few outliers show whether a rule that was held still fires all the time.
const few = 20

// allowFew takes what is more than a few out of the buckets of a rule that is
// held, so that no program is at them.
func (r *Rules) allowFew(name string) error {
	i := r.indexOf(name)
	if i < 0 || r.opts.OutlierNS == 0 {
		return nil
	}
	full := linux.Monotonic() + r.opts.BurstNS - min(few*r.opts.OutlierNS, r.opts.BurstNS)
	const size = int(unsafe.Sizeof(abi.RuleState{}))
	const bucket, asked = int(unsafe.Offsetof(abi.RuleState{}.BucketNs)), int(unsafe.Offsetof(abi.RuleState{}.AskedNs))
	state := int(r.current.Rules[i].Id) * size
	return errors.Join(kernel.WriteWord(r.kernel.Memory().RuleStates, state+bucket, full), kernel.WriteWord(r.kernel.Memory().RuleStates, state+asked, full))
}

// pauseHeld pauses rules of the current generation.
func (r *Rules) pauseHeld() error {
	g := r.current
	sources := slices.Clone(g.Sources)
	half := int(g.Number & 1)
	const size, paused = int(unsafe.Sizeof(abi.Rule{})), int(unsafe.Offsetof(abi.Rule{}.Paused))
	for i, rule := range sources {
		if !r.held[rule.Name] || rule.Paused {
			continue
		}
		own := *rule
		own.Paused = true
		sources[i] = &own
		g.Rules[i].Paused = 1
		if _, err := r.kernel.Memory().Rules.WriteAt([]byte{1}, int64((half*abi.MaxRules+i)*size+paused)); err != nil {
			return fmt.Errorf("pause rule %s: %w", own.Name, err)
		}
	}
	g.Sources, g.Floors, g.Timeouts = sources, compile.NewFloors(sources, r.opts.Pairs), compile.NewTimeouts(sources, r.opts.Pairs)
	if err := errors.Join(r.writeFloors(&g.Floors), r.writeTimeouts(&g.Timeouts)); err != nil {
		return fmt.Errorf("pause rules: %w", err)
	}
	return nil
}

// ShedUserStacks leaves out user stacks of all rules, or takes them again. It
// holds over Swap, too.
func (r *Rules) ShedUserStacks(shed bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noUserStacks == shed {
		return nil
	}
	r.noUserStacks = shed
	if err := r.installLocked(r.list); err != nil {
		r.noUserStacks = !shed
		return fmt.Errorf("change the stacks of rules: %w", err)
	}
	return nil
}

// withHeld sets Paused of the rules that are held, and leaves out stacks that are shed.
func (r *Rules) withHeld(list []rules.Rule) []rules.Rule {
	list = slices.Clone(list)
	for i := range list {
		list[i].Paused = list[i].Paused || r.held[list[i].Name]
		if r.noUserStacks {
			list[i].Stacks = slices.DeleteFunc(slices.Clone(list[i].Stacks), func(s rules.Stack) bool { return s == rules.UserStack })
		}
	}
	return list
}
