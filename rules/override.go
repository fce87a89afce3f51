package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ratchet reads ratchet. A new maximum is only known at the exit, and only for one
// fixed threshold.
func (r *reader) ratchet(keys map[string]entry, rule *Rule) {
	e, ok := keys["ratchet"]
	if !ok {
		return
	}
	rule.Ratchet, _ = r.boolean(e.value, "ratchet")
	if !rule.Ratchet {
		return
	}
	timeout := rule.Timeout > 0 || slices.ContainsFunc(rule.Overrides, func(o Override) bool { return o.Timeout > 0 })
	switch {
	case timeout:
		r.fail(e.key, "ratchet without timeout; timeouts in a separate rule", "ratchet cannot be combined with a timeout")
	case rule.IsAdaptive():
		r.fail(e.key, "ratchet with durations as thresholds", "ratchet cannot be combined with a threshold with quantile")
	}
}

// ParseOverride parses limits that are set at run time, as strictly as an override
// in a rule file. when maps keys to conditions; if it is empty, the override is for
// all work of the rule. threshold and timeout are durations; "" is none. Errors
// have no position, as there is no file.
func ParseOverride(rule *Rule, when map[string][]string, threshold, timeout string, machine Machine) (Override,
	error) {
	r := newReader(machine)
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	pair := func(key string, value *yaml.Node) {
		root.Content = append(root.Content, scalar(key, true), value)
	}
	if len(when) > 0 {
		pair("when", conditionsNode(when))
	}
	if threshold != "" {
		pair("threshold", scalar(threshold, true))
	}
	if timeout != "" {
		pair("timeout", scalar(timeout, true))
	}
	keys := r.mapping(root, "override", overrideKeys)
	var got Override
	if e, ok := keys["when"]; ok {
		got.When = r.when(e.value, rule.Track)
	}
	if threshold == "" && timeout == "" {
		r.fail(root, "a threshold, such as 2ms, a timeout, or both", "nothing to set")
	} else {
		r.overrideLimits(root, keys, rule, &got)
	}
	if rule.Ratchet && timeout != "" {
		r.fail(root, "a threshold", "ratchet cannot be combined with a timeout")
	}
	if len(r.errs) == 0 {
		return got, nil
	}
	var lines []string
	for _, e := range r.errs {
		line := e.Msg
		if e.Allowed != "" {
			line += "; allowed: " + e.Allowed
		}
		lines = append(lines, line)
	}
	return Override{}, fmt.Errorf("rule %s: %s", rule.Name, strings.Join(lines, "; and "))
}

// WhenKeys lists the conditions that rules of a tracker may have.
func WhenKeys(track Track) []string {
	return slices.DeleteFunc(slices.Clone(whenKeys), func(key string) bool {
		tracks := tracksOf(key)
		return tracks != nil && !slices.Contains(tracks, track)
	})
}

func conditionsNode(when map[string][]string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	keys := make([]string, 0, len(when))
	for key := range when {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, v := range when[key] {
			list.Content = append(list.Content, scalar(v, !slices.Contains(numbered, key)))
		}
		if key == "preempted" && len(list.Content) == 1 {
			list = list.Content[0]
		}
		n.Content = append(n.Content, scalar(key, true), list)
	}
	return n
}

// numbered are the conditions with values that need not be strings. All others are
// strings, as if quoted in a file: comm=123.
var numbered = []string{"pid", "not_pid", "tid", "not_tid", "uid", "not_uid", "irq", "not_irq", "cpu", "not_cpu",
	"preempted"}

func scalar(v string, text bool) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: v, Tag: "!!str"}
	if !text {
		n.Tag = ""
		n.Tag = n.ShortTag()
	}
	return n
}

// WithLimits returns r with other limits; 0 keeps the limit of r.
func (r Rule) WithLimits(threshold, timeout time.Duration) Rule {
	if threshold > 0 {
		r.Threshold, r.Adaptive = threshold, nil
	}
	if timeout > 0 {
		r.Timeout = timeout
	}
	return r
}

// sectors reads one range, such as 0-2047, or one sector.
func (r *reader) sectors(n *yaml.Node, what string) *Sectors {
	const allowed = "one range first-last, such as 0-2047; use overrides for more"
	list := r.list(n, what)
	if len(list) == 0 {
		return nil
	}
	if len(list) > 1 {
		r.fail(list[1], allowed, "%s has %d ranges", what, len(list))
		return nil
	}
	v := list[0]
	first, last, both := strings.Cut(v.Value, "-")
	if !both {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 63)
	b, err2 := strconv.ParseUint(last, 10, 63)
	if v.Kind != yaml.ScalarNode || err != nil || err2 != nil || a > b {
		r.fail(v, allowed, "%s is %q", what, cut(v.Value))
		return nil
	}
	return &Sectors{a, b}
}
