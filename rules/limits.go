package rules

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bounds of timeouts. Pending work is scanned every 8 ms.
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
		r.fail(n, "rules with threshold, timeout, or both", "rule has no threshold")
	}
	if limited {
		rule.Timeout = r.duration(keys["timeout"].value, "timeout", minTimeout, maxTimeout)
		r.checkOrder(keys["timeout"].value, rule.reachable(rule.limits(nil), nil))
	}
	if e, ok := keys["repeat"]; ok {
		rule.Repeat = r.duration(e.value, "repeat", minTimeout, maxTimeout)
		if !limited {
			r.fail(e.key, "repeat together with timeout", "repeat requires timeout")
		}
	}
}

// checkOrder rejects a timeout below the threshold.
func (r *reader) checkOrder(n *yaml.Node, l Limits) {
	if l.Timeout > 0 && l.Timeout < l.Threshold {
		r.fail(n, fmt.Sprintf("at least the threshold, %s, or no threshold", shortDuration(l.Threshold)),
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
		r.fail(n, "overrides with when, and threshold, timeout, or both", "override has no threshold")
	}
}

// reachable replaces an adaptive threshold by its floor.
func (r *Rule) reachable(l Limits, o *Override) Limits {
	switch {
	case o != nil && o.Adaptive != nil:
		l.Threshold = o.Adaptive.Floor
	case r.Adaptive != nil && (o == nil || o.Threshold == 0):
		l.Threshold = r.Adaptive.Floor
	}
	return l
}

// limits returns those of an override, with the rule's own as defaults; nil: the rule's.
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

// LimitsFor returns the limits that apply: those of the first override whose
// conditions hold, or the rule's own. It does not check the rule's When.
func (r *Rule) LimitsFor(f *Facts) Limits {
	for i := range r.Overrides {
		if r.Overrides[i].When.Matches(f) {
			return r.limits(&r.Overrides[i])
		}
	}
	return Limits{r.Threshold, r.Timeout}
}

// LimitsOf returns the limits of override i, with the rule's own as defaults.
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
