package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Limits of the kernel side's tables, all rules together; see KernelLimits.
const (
	MaxRules     = 64
	MaxOverrides = 256
	MaxCommGlobs = 512
	MaxMembers   = 98304
	MaxVerdicts  = 64 // cgroup conditions, and different globs in them; the same for devices
)

const maxNameLen = 48

// Priorities of rules.
const (
	defaultPriority = 50
	maxPriority     = 100
)

// Keys of the mappings of a rule file, in the order in which errors list them.
var (
	fileKeys = []string{"rules", "disable", "actions"}
	ruleKeys = []string{"name", "track", "attach", "from", "to", "entry", "exit", "cancel", "key", "on_duplicate", "entry_when",
		"exit_when", "labels", "forget_after", "activity",
		"threshold", "timeout", "repeat", "ratchet", "when", "overrides", "stacks", "histogram", "on", "target", "snapshot", "actions", "action_limits", "priority", "extend"}
	overrideKeys = []string{"when", "threshold", "timeout"}
	snapshotKeys = []string{"before", "after", "every", "burst"}
)

func (r *reader) rule(n *yaml.Node) Rule {
	rule := Rule{
		Pos:      r.position(n),
		Priority: defaultPriority,
		Stacks:   []Stack{KernelStack},
		Snapshot: SnapshotPolicy{Enabled: true, Before: BeforeCover, After: 50 * time.Millisecond, Every: time.Second, Burst: 1},
	}
	keys := r.mapping(n, "rule", ruleKeys)
	if keys == nil {
		return rule
	}
	for _, key := range []string{"name", "track"} {
		if _, ok := keys[key]; !ok {
			r.fail(n, "rules with name, track, and threshold or timeout", "rule has no %s", key)
		}
	}
	if e, ok := keys["name"]; ok {
		rule.Name = r.name(e.value)
	}
	if e, ok := keys["track"]; ok {
		rule.Track = r.track(e.value)
	}
	if rule.Track == Trigger {
		r.trigger(n, keys, &rule)
		return rule
	}
	r.noTrigger(keys, &rule)
	r.attach(keys, &rule)
	r.limits(n, keys, &rule)
	if e, ok := keys["when"]; ok {
		rule.When = r.when(e.value, rule.Track)
	}
	r.chain(keys, &rule)
	r.pair(n, keys, &rule)
	if e, ok := keys["overrides"]; ok {
		rule.Overrides = r.overridesOf(e.value, &rule)
	}
	r.ratchet(keys, &rule)
	r.activity(keys, &rule)
	if rule.Track == Block && rule.Timeout == 0 {
		rule.Stacks = nil // the issuing task is elsewhere when a request completes
	}
	if e, ok := keys["stacks"]; ok {
		rule.Stacks = r.stacks(e.value, &rule)
	}
	if e, ok := keys["snapshot"]; ok {
		r.snapshot(e.value, &rule.Snapshot)
	}
	if e, ok := keys["histogram"]; ok {
		r.histogram(e.value, &rule)
	}
	r.finishAdaptive(n, &rule)
	if e, ok := keys["priority"]; ok {
		priority, _ := r.number(e.value, "priority", 0, maxPriority)
		rule.Priority = int(priority)
	}
	r.ruleActions(keys, &rule)
	return rule
}

func (r *reader) name(n *yaml.Node) string {
	name, ok := r.text(n, "name")
	if !ok {
		return ""
	}
	bad := strings.IndexFunc(name, func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z')
	})
	if bad >= 0 || len(name) > maxNameLen {
		r.fail(n, fmt.Sprintf("a-z, 0-9 and -, at most %d characters", maxNameLen), "invalid name %q", cut(name))
		return ""
	}
	if first, twice := r.names[name]; twice {
		r.fail(n, "a unique name for each rule", "duplicate name %q, first used at %s", name, first)
		return ""
	}
	r.names[name] = r.position(n)
	return name
}

func (r *reader) track(n *yaml.Node) Track {
	s, ok := r.text(n, "track")
	if !ok {
		return ""
	}
	var names []string
	for _, t := range append(slices.Clone(Tracks), Activity, Trigger) {
		if slices.Contains(unbuilt, t) {
			continue
		}
		if Track(s) == t {
			return t
		}
		names = append(names, string(t))
	}
	if slices.Contains(unbuilt, Track(s)) {
		r.fail(n, strings.Join(names, ", "), "track %s is not supported yet", s)
	} else {
		r.fail(n, strings.Join(names, ", "), "%s", r.unknown("track", s, names))
	}
	return ""
}

// attach reads what a syscall rule is attached to.
func (r *reader) attach(keys map[string]entry, rule *Rule) {
	if rule.Track == Syscall {
		rule.Attach = AttachAuto
	}
	e, ok := keys["attach"]
	if !ok {
		return
	}
	ways := []Attach{AttachAuto, AttachFunction, AttachAll}
	switch got := words(r, e.value, "attach", ways); {
	case len(got) > 1:
		r.fail(e.value, "one of "+join(ways), "attach has %d values", len(got))
	case rule.Track != Syscall && rule.Track != "":
		r.fail(e.key, "track syscall", "attach does not apply to track %s", rule.Track)
	case len(got) == 1:
		rule.Attach = got[0]
	}
}

// blocks reads a list of mappings.
func (r *reader) blocks(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		kind := kindOf(n)
		if n.Kind == yaml.SequenceNode {
			kind = "an empty list"
		}
		r.fail(n, "a list of "+what, "%s is %s", what, kind)
		return nil
	}
	return n.Content
}

func (r *reader) overridesOf(n *yaml.Node, rule *Rule) []Override {
	var all []Override
	for _, o := range r.blocks(n, "overrides") {
		r.overrides++
		if r.overrides > MaxOverrides {
			r.fail(o, fmt.Sprintf("at most %d in all rules", MaxOverrides), "too many overrides")
			break
		}
		keys := r.mapping(o, "override", overrideKeys)
		if keys == nil {
			continue
		}
		var got Override
		if e, ok := keys["when"]; ok {
			got.When = r.when(e.value, rule.Track)
		} else {
			r.fail(o, "overrides with when, and threshold, timeout, or both", "override has no when")
		}
		r.overrideLimits(o, keys, rule, &got)
		all = append(all, got)
	}
	return all
}

func (r *reader) stacks(n *yaml.Node, rule *Rule) []Stack {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return nil // no stacks
	}
	stacks := words(r, n, "stacks", []Stack{KernelStack, UserStack, WakerStack, ProgressStacks})
	onlyKernel := len(rule.When.Thread) == 1 && rule.When.Thread[0] == KernelThread
	switch {
	case rule.Track == Block && (rule.Timeout == 0 || !slices.Equal(stacks, []Stack{KernelStack})):
		r.fail(n, "stacks: [kernel] with a timeout", "track block has only the kernel stack of a timeout")
	case slices.Contains(stacks, ProgressStacks) && rule.Track != Syscall:
		r.fail(n, "progress with track syscall", "track %s has no progress stacks", rule.Track)
	case rule.Track == Workqueue && (rule.Timeout == 0 || !slices.Equal(stacks, []Stack{KernelStack})):
		r.fail(n, "stacks: [kernel] with a timeout", "track workqueue has only the kernel stack of a timeout")
	case slices.Contains(stacks, WakerStack) &&
		slices.Contains([]Track{Syscall, IRQ, Softirq, Chain, Pair, Span}, rule.Track):
		r.fail(n, "waker with track wakeup, offcpu", "track %s has no waker stack", rule.Track)
	case slices.Contains(stacks, UserStack) && onlyKernel:
		r.fail(n, "kernel, waker", "kernel threads have no user stack")
	}
	return stacks
}

func (r *reader) snapshot(n *yaml.Node, p *SnapshotPolicy) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		p.Enabled, _ = r.boolean(n, "snapshot")
		return
	}
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.fail(n, "true, false, or a mapping with "+strings.Join(snapshotKeys, ", "), "snapshot is %s", emptyOr(n))
		return
	}
	keys := r.mapping(n, "snapshot", snapshotKeys)
	if e, ok := keys["before"]; ok {
		p.Before = r.duration(e.value, "before", 0, maxDuration)
	}
	if e, ok := keys["after"]; ok {
		p.After = r.duration(e.value, "after", 0, maxAfter)
	}
	if e, ok := keys["every"]; ok {
		p.Every = r.duration(e.value, "every", minDuration, maxDuration)
	}
	if e, ok := keys["burst"]; ok {
		burst, _ := r.number(e.value, "burst", 1, 1000)
		p.Burst = int(burst)
	}
}

func emptyOr(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		return "an empty mapping"
	}
	return kindOf(n)
}
