package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// When an action runs.
const (
	OnSnapshot = "snapshot" // after each snapshot of a rule
	OnOutlier  = "outlier"  // after each outlier of a rule
	OnTrigger  = "trigger"  // after each snapshot that no rule asked for; not in a rule
)

// Action is an executable that the operator provides.
type Action struct {
	Run     []string
	Timeout time.Duration // then everything that it started is killed
	User    string        // empty: the daemon's actions.user
	On      string        // OnSnapshot, OnOutlier or OnTrigger
	If      *Condition    // nil: always
	// StopOnFailure: if it fails, the actions behind it in the same list do not run.
	StopOnFailure bool
	Limit         *ActionLimit // how often it runs; nil: always
	ActionBounds               // of one run; 0: the daemon's, actions.max_cpu and so on
}

// ActionBounds limits what actions use.
type ActionBounds struct {
	MaxCPU    time.Duration // CPU time of everything that they start
	MaxMemory int64         // bytes, of everything that they start
	MaxOutput int64         // bytes that they print; more is dropped
}

// SharedAction is an action of no rule in particular.
type SharedAction struct {
	Action
	Pos Position
}

// ActionLimit limits how often an action runs: Burst times at once, then once in Every,
// for each key.
type ActionLimit struct {
	Every time.Duration
	Burst int
	Per   []ActionKey // empty: one limit for all
}

// ActionKey is a part of the key of an ActionLimit.
type ActionKey string

// Keys of limits.
const (
	PerRule    ActionKey = "rule"
	PerCause   ActionKey = "cause" // of the verdict
	PerCulprit ActionKey = "culprit"
	PerComm    ActionKey = "comm"   // of the slow task
	PerCgroup  ActionKey = "cgroup" // of the slow task
)

// Bounds of actions.
const (
	maxSharedActions = 64
	maxActionEvery   = 30 * 24 * time.Hour
	maxActionCPU     = 24 * time.Hour

	// MinActionMemory and MaxActionBytes bound the limits of one run, in bytes.
	MinActionMemory = 16 << 20
	MaxActionBytes  = 1 << 40
)

var (
	boundKeys  = []string{"max_cpu", "max_memory", "max_output"}
	actionKeys = append([]string{"run", "timeout", "user", "on", "if", "on_failure", "every", "burst", "per"}, boundKeys...)
)

// ruleActions reads the actions of a rule, and what limits all of them.
func (r *reader) ruleActions(keys map[string]entry, rule *Rule) {
	actions, has := keys["actions"]
	e, limited := keys["action_limits"]
	if limited {
		rule.ActionLimits = &ActionBounds{}
		limits := r.mapping(e.value, "action_limits", boundKeys)
		r.actionBounds(limits, rule.ActionLimits)
		if limits != nil && len(limits) == 0 {
			r.fail(e.value, strings.Join(boundKeys, ", "), "action_limits is empty")
		}
		if !has {
			r.fail(e.key, "actions beside it", "action_limits, but the rule has no actions")
		}
	}
	if has {
		rule.Actions = r.actionsOf(actions.value, rule)
	}
}

// notAbove rejects a limit of an action that its rule does not leave it.
func (r *reader) notAbove(keys map[string]entry, a, rule *ActionBounds) {
	for _, b := range []struct {
		key       string
		own, most int64
	}{
		{"max_cpu", int64(a.MaxCPU), int64(rule.MaxCPU)},
		{"max_memory", a.MaxMemory, rule.MaxMemory},
		{"max_output", a.MaxOutput, rule.MaxOutput},
	} {
		if e, ok := keys[b.key]; ok && b.most > 0 && b.own > b.most {
			r.fail(e.value, "at most that of action_limits", "%s %s is above that of its rule", b.key, cut(e.value.Value))
		}
	}
}

// actionsOf reads the actions of a rule; nil: of all.
func (r *reader) actionsOf(n *yaml.Node, rule *Rule) (list []Action) {
	for _, a := range r.blocks(n, "actions") {
		list = append(list, r.action(a, rule)...)
	}
	return list
}

// sharedActions reads the actions of a file.
func (r *reader) sharedActions(n *yaml.Node) (list []SharedAction) {
	for _, b := range r.blocks(n, "actions") {
		r.shared++
		if r.shared > maxSharedActions {
			r.fail(b, fmt.Sprintf("at most %d in all files", maxSharedActions), "too many actions")
			break
		}
		for _, a := range r.action(b, nil) {
			list = append(list, SharedAction{Action: a, Pos: r.position(b)})
		}
	}
	return list
}

// action reads an action of a rule, or one for all. It returns one for each entry of on.
func (r *reader) action(n *yaml.Node, rule *Rule) []Action {
	a := Action{Timeout: 30 * time.Second, On: OnSnapshot}
	keys := r.mapping(n, "action", actionKeys)
	if keys == nil {
		return nil
	}
	if e, ok := keys["run"]; ok {
		a.Run = r.run(e.value)
	} else {
		r.fail(n, "run: [/path/to/program, argument, …]", "action has no run")
	}
	if e, ok := keys["timeout"]; ok {
		a.Timeout = r.duration(e.value, "timeout", minDuration, maxDuration)
	}
	if e, ok := keys["user"]; ok {
		if name, ok := r.text(e.value, "user"); ok {
			if _, err := r.machine.LookupUser(name); err != nil {
				r.fail(e.value, "an existing user", "unknown user %q", cut(name))
			}
			a.User = name
		}
	}
	if e, ok := keys["on_failure"]; ok {
		a.StopOnFailure = r.word(e.value, "on_failure", []string{"stop", "continue"}) == "stop"
	}
	a.Limit = r.actionLimit(keys)
	r.actionBounds(keys, &a.ActionBounds)
	if rule != nil && rule.ActionLimits != nil {
		r.notAbove(keys, &a.ActionBounds, rule.ActionLimits)
	}
	on := r.actionOn(n, keys, rule)
	if e, ok := keys["if"]; ok {
		a.If = r.actionIf(e.value, rule, on)
	}
	list := make([]Action, len(on))
	for i := range on {
		list[i] = a
		list[i].On = on[i]
	}
	return list
}

// actionOn reads when an action runs.
func (r *reader) actionOn(n *yaml.Node, keys map[string]entry, rule *Rule) []string {
	on, where := []string{OnSnapshot}, n
	if e, ok := keys["on"]; ok {
		where = e.value
		on = words(r, e.value, "on", []string{OnSnapshot, OnOutlier, OnTrigger})
	}
	if rule == nil {
		return on
	}
	if slices.Contains(on, OnTrigger) {
		r.fail(where, "on: trigger among the actions of the file, beside rules", "snapshots of triggers belong to no rule")
	}
	if slices.Contains(on, OnSnapshot) && !rule.Snapshot.Enabled {
		r.fail(where, "on: outlier, or snapshots", "action runs on snapshots, but the rule has snapshot: false")
	}
	return on
}

// word reads one word out of allowed.
func (r *reader) word(n *yaml.Node, what string, allowed []string) string {
	got := words(r, n, what, allowed)
	switch len(got) {
	case 0:
		return ""
	case 1:
		return got[0]
	}
	r.fail(n, "one of "+strings.Join(allowed, ", "), "%s has %d values", what, len(got))
	return ""
}

// actionLimit reads how often an action may run; nil: no limit.
func (r *reader) actionLimit(keys map[string]entry) *ActionLimit {
	l := &ActionLimit{Burst: 1}
	if e, ok := keys["burst"]; ok {
		n, _ := r.number(e.value, "burst", 1, 1000)
		l.Burst = int(n)
	}
	if e, ok := keys["per"]; ok {
		l.Per = words(r, e.value, "per", []ActionKey{PerRule, PerCause, PerCulprit, PerComm, PerCgroup})
	}
	e, ok := keys["every"]
	if !ok {
		for _, key := range []string{"burst", "per"} {
			if e, ok := keys[key]; ok {
				r.fail(e.key, "every, such as every: 1h", "%s requires every", key)
			}
		}
		return nil
	}
	l.Every = r.duration(e.value, "every", time.Second, maxActionEvery)
	return l
}

// actionBounds reads limits of what is used.
func (r *reader) actionBounds(keys map[string]entry, a *ActionBounds) {
	if e, ok := keys["max_cpu"]; ok {
		a.MaxCPU = r.duration(e.value, "max_cpu", time.Second, maxActionCPU)
	}
	if e, ok := keys["max_memory"]; ok {
		a.MaxMemory = r.bytes(e.value, "max_memory", MinActionMemory, MaxActionBytes)
	}
	if e, ok := keys["max_output"]; ok {
		a.MaxOutput = r.bytes(e.value, "max_output", 1, MaxActionBytes)
	}
}

// bytes reads a size.
func (r *reader) bytes(n *yaml.Node, what string, least, most int64) int64 {
	allowed := fmt.Sprintf("a size from %s to %s, such as 64MiB", FormatBytes(least), FormatBytes(most))
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Tag != "!!int" {
		r.fail(n, allowed, "%s is %s", what, kindOf(n))
		return 0
	}
	v, ok := ParseBytes(n.Value)
	switch {
	case !ok:
		r.fail(n, allowed, "%s %q is not a size", what, cut(n.Value))
	case v < least:
		r.fail(n, allowed, "%s %s is too small", what, cut(n.Value))
	case v > most:
		r.fail(n, allowed, "%s %s is too large", what, cut(n.Value))
	}
	return v
}

// run reads the program of an action with its arguments.
func (r *reader) run(n *yaml.Node) []string {
	var args []string
	for i, v := range r.list(n, "run") {
		if i > 0 && v.Kind == yaml.ScalarNode && !isNull(v) {
			args = append(args, v.Value) // 5 and "" are valid arguments
			continue
		}
		s, ok := r.text(v, "run")
		if !ok {
			continue
		}
		if i == 0 {
			if !path.IsAbs(s) {
				r.fail(v, "an absolute path, with arguments as further list entries", "run: %q is not an absolute path", cut(s))
			} else if err := r.machine.CheckExecutable(s); err != nil {
				r.fail(v, "an executable file", "run: %s %v", cut(s), err)
			}
		}
		args = append(args, s)
	}
	return args
}
