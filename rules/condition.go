package rules

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Condition has the conditions of one `if`. All must hold; the entries of one list are
// alternatives; an empty list is no condition. The names are those of a verdict's JSON.
type Condition struct {
	Rule, NotRule     []string // globs; of triggers: manual
	Cause, NotCause   []string // of VerdictCauses
	ByKind, NotByKind []string // of CulpritKinds
	By, NotBy         []string // globs on the culprit
	Confidence        []string // of Confidences
	NotConfidence     []string
	MinShare          float64 // of the delay that the culprit must have, up to 1; 0: any
	MinDelay          time.Duration
}

// Verdict is what a Condition is about. What is not known is empty.
type Verdict struct {
	Rule, Cause, By, ByKind string
	Confidence              string
	Share                   float64 // of the delay, 0 to 1
	Delay                   time.Duration
}

// VerdictCauses, CulpritKinds and Confidences are the words of explanations.
var (
	VerdictCauses = []string{
		"running_user", "running_kernel", "running", "preempted", "runnable", "misplaced", "throttled", "irq", "softirq",
		"stolen", "block_queue", "block_device", "lock", "task", "timer", "network", "reclaim", "compaction", "page_fault",
		"workqueue", "journal", "stopped", "protocol_timer", "limit", "unexplained",
	}
	CulpritKinds = []string{
		"task", "irq", "softirq", "timer", "device", "cgroup", "hypervisor", "network", "work", "memory", "self", "unknown",
	}
	Confidences = []string{"seen", "inferred", "guess"}
)

var conditionKeys = []string{
	"rule", "not_rule", "cause", "not_cause", "by_kind", "not_by_kind", "by", "not_by", "confidence", "not_confidence",
	"min_share", "min_delay",
}

// Matches reports whether all conditions hold. Of a verdict that is not known only the
// conditions with not_ hold. A nil Condition always holds.
func (c *Condition) Matches(v *Verdict) bool {
	return c == nil || v.Delay >= c.MinDelay && v.Share >= c.MinShare &&
		among(c.Rule, c.NotRule, v.Rule, GlobMatch) &&
		among(c.Cause, c.NotCause, v.Cause, equal) &&
		among(c.ByKind, c.NotByKind, v.ByKind, equal) &&
		among(c.By, c.NotBy, v.By, GlobMatch) &&
		among(c.Confidence, c.NotConfidence, v.Confidence, equal)
}

func equal(a, b string) bool { return a == b }

// among reports whether a value is one of yes, if there are any, and none of no.
func among(yes, no []string, value string, match func(pattern, s string) bool) bool {
	is := func(pattern string) bool { return value != "" && match(pattern, value) }
	return (len(yes) == 0 || slices.ContainsFunc(yes, is)) && !slices.ContainsFunc(no, is)
}

// maxByLen bounds the time to match a culprit.
const maxByLen = 255

// actionIf reads the conditions of an action of a rule, or of one for all.
func (r *reader) actionIf(n *yaml.Node, rule *Rule, on []string) *Condition {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 || isNull(n) {
		r.fail(n, "at least one condition, or no if", "if is empty")
		return nil
	}
	c := &Condition{}
	keys := r.mapping(n, "if", conditionKeys)
	for _, key := range conditionKeys {
		e, ok := keys[key]
		if !ok {
			continue
		}
		named := key == "rule" || key == "not_rule"
		switch {
		case named && rule != nil:
			r.fail(e.key, key+" among the actions of the file, beside rules", "%s does not apply to an action of a rule", key)
		case !named && key != "min_delay" && slices.Contains(on, OnOutlier):
			r.fail(e.key, "on: snapshot, on: trigger", "%s is not known on outlier: there is no verdict yet", key)
		default:
			r.conditionOf(key, e.value, c)
		}
	}
	r.conditionContradictions(keys)
	return c
}

func (r *reader) conditionOf(key string, n *yaml.Node, c *Condition) {
	globs := func() []string { return r.globs(n, key, maxByLen, "", nil) }
	switch key {
	case "rule":
		c.Rule = globs()
	case "not_rule":
		c.NotRule = globs()
	case "cause":
		c.Cause = words(r, n, key, VerdictCauses)
	case "not_cause":
		c.NotCause = words(r, n, key, VerdictCauses)
	case "by_kind":
		c.ByKind = words(r, n, key, CulpritKinds)
	case "not_by_kind":
		c.NotByKind = words(r, n, key, CulpritKinds)
	case "by":
		c.By = globs()
	case "not_by":
		c.NotBy = globs()
	case "confidence":
		c.Confidence = words(r, n, key, Confidences)
	case "not_confidence":
		c.NotConfidence = words(r, n, key, Confidences)
	case "min_share":
		var ok bool
		if c.MinShare, ok = r.fraction(n, key); ok && (c.MinShare <= 0 || c.MinShare > 1) {
			r.fail(n, "a number above 0, at most 1, such as 0.5", "%s is %s", key, cut(n.Value))
		}
	case "min_delay":
		c.MinDelay = r.duration(n, key, minDuration, maxActionDelay)
	}
}

// maxActionDelay is that of triggers and timeouts.
const maxActionDelay = 24 * time.Hour

// conditionContradictions finds conditions that can never hold together.
func (r *reader) conditionContradictions(keys map[string]entry) {
	for _, key := range []string{"rule", "cause", "by_kind", "by", "confidence"} {
		yes, both := keys[key]
		not, ok := keys["not_"+key]
		if !ok || !both {
			continue
		}
		for _, w := range scalars(not.value) {
			if slices.ContainsFunc(scalars(yes.value), func(v *yaml.Node) bool { return v.Value == w.Value }) {
				r.fail(w, "each value in one of them", "%s is in both %s and not_%s", cut(w.Value), key, key)
			}
		}
	}
}
