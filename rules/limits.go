package rules

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bounds of timeouts: pending work is looked at every 8 ms.
const (
	minTimeout = 10 * time.Millisecond
	maxTimeout = 24 * time.Hour
)

// Limits are the threshold and the timeout that apply to one piece of work; 0: none.
type Limits struct {
	Threshold time.Duration
	Timeout   time.Duration
}

// limits reads threshold, timeout and repeat of a rule.
func (r *reader) limits(n *yaml.Node, keys map[string]entry, rule *Rule) {
	_, limited := keys["timeout"]
	if e, ok := keys["threshold"]; ok {
		rule.Threshold, rule.Adaptive = r.threshold(e.value)
	} else if !limited {
		r.fail(n, "each rule has a threshold, a timeout, or both", "rule has no threshold")
	}
	if limited {
		rule.Timeout = r.duration(keys["timeout"].value, "timeout", minTimeout, maxTimeout)
		r.checkOrder(keys["timeout"].value, rule.reachable(rule.limits(nil), nil))
	}
	if e, ok := keys["repeat"]; ok {
		rule.Repeat = r.duration(e.value, "repeat", minTimeout, maxTimeout)
		if !limited {
			r.fail(e.key, "repeat beside a timeout of the rule", "repeat has no meaning without timeout")
		}
	}
}

// checkOrder refuses a timeout that would fire before the threshold can.
func (r *reader) checkOrder(n *yaml.Node, l Limits) {
	if l.Timeout > 0 && l.Timeout < l.Threshold {
		r.fail(n, fmt.Sprintf("at least the threshold, %s; a rule without a threshold may have any timeout", shortDuration(l.Threshold)),
			"timeout %s is below the threshold", shortDuration(l.Timeout))
	}
}

// overrideLimits reads threshold and timeout of an override.
func (r *reader) overrideLimits(n *yaml.Node, keys map[string]entry, rule *Rule, o *Override) {
	t, hasThreshold := keys["threshold"]
	if hasThreshold {
		o.Threshold, o.Adaptive = r.threshold(t.value)
	}
	e, hasTimeout := keys["timeout"]
	if hasTimeout {
		o.Timeout = r.duration(e.value, "timeout", minTimeout, maxTimeout)
	}
	if rule.Track == Chain {
		r.noTimeout(keys)
	}
	switch {
	case hasTimeout:
		r.checkOrder(e.value, rule.reachable(rule.limits(o), o))
	case hasThreshold:
		r.checkOrder(t.value, rule.reachable(rule.limits(o), o))
	default:
		r.fail(n, "each override has when, and a threshold, a timeout, or both", "override has no threshold")
	}
}

// reachable takes for an adaptive threshold the least that it can be.
func (r *Rule) reachable(l Limits, o *Override) Limits {
	switch {
	case o != nil && o.Adaptive != nil:
		l.Threshold = o.Adaptive.Floor
	case r.Adaptive != nil && (o == nil || o.Threshold == 0):
		l.Threshold = r.Adaptive.Floor
	}
	return l
}

// limits are those of an override, the rule's own where it has none; nil: the rule's.
func (r *Rule) limits(o *Override) Limits {
	l := Limits{r.Threshold, r.Timeout}
	if o == nil {
		return l
	}
	if o.Threshold > 0 || o.Adaptive != nil {
		l.Threshold = o.Threshold
	}
	if o.Timeout > 0 {
		l.Timeout = o.Timeout
	}
	return l
}

// LimitsFor are the limits that apply: those of the first override whose
// conditions hold, or the rule's own. It does not look at the rule's When.
func (r *Rule) LimitsFor(f *Facts) Limits {
	for i := range r.Overrides {
		if r.Overrides[i].When.Matches(f) {
			return r.limits(&r.Overrides[i])
		}
	}
	return Limits{r.Threshold, r.Timeout}
}

// LimitsOf are the limits of override i, the rule's own where it has none.
func (r *Rule) LimitsOf(i int) Limits { return r.limits(&r.Overrides[i]) }

// KernelLimits are the limits of the kernel side that this package knows, by
// their names there. It imports nothing of that side: a test of bpf/abi holds
// them to it.
func KernelLimits() map[string]int {
	return map[string]int{
		"MAX_RULES": MaxRules, "MAX_OVERRIDES": MaxOverrides, "MAX_GLOBS": MaxCommGlobs,
		"SPAN_KEY_LEN": MaxSpanKey + 1, "MAX_KEY_GLOBS": MaxKeyGlobs,
		"PAIR_PARTS": maxKeyParts, "PAIR_LABELS": maxLabels, "PAIR_CONDITIONS": maxConditions,
	}
}
