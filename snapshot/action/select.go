package action

import (
	"time"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker/events"
)

// Item is an action and the outlier passed to it.
type Item struct {
	Action rules.Action
	// Owner is the rule that has the action; "": the action belongs to no rule. Actions of
	// one owner are a chain: see rules.Action.StopOnFailure.
	Owner string
	// Limits are of all actions of the owner together; nil: none.
	Limits  *rules.ActionBounds
	Outlier events.Outlier
}

// Select lists the actions for the outliers of a snapshot (rules.OnSnapshot, or
// rules.OnTrigger) or for one outlier (rules.OnOutlier): those of each rule, then those
// of no rule, each list in the order of the files. An action gets the first outlier of
// its rule, or of any rule, for which its `if` holds, and runs once. Rules that the
// lookup does not find (any more) are skipped. Unmatched are the rules of actions that
// are for one of the outliers, but for their `if`.
func Select(on string, outliers []events.Outlier, rule func(name string) *rules.Rule, shared []rules.SharedAction) (
	items []Item, unmatched []string,
) {
	add := func(a *rules.Action, owner string, limits *rules.ActionBounds) {
		it, but := choose(on, a, owner, outliers)
		if it != nil {
			it.Limits = limits
			items = append(items, *it)
		} else if but != "" {
			unmatched = append(unmatched, but)
		}
	}
	seen := map[string]bool{}
	for i := range outliers {
		name := outliers[i].Rule
		if seen[name] {
			continue
		}
		seen[name] = true
		r := rule(name)
		if r == nil {
			continue
		}
		for j := range r.Actions {
			add(&r.Actions[j], name, r.ActionLimits)
		}
	}
	for i := range shared {
		add(&shared[i].Action, "", nil)
	}
	return items, unmatched
}

// choose finds the first outlier that an action is for, or the rule of the first one for
// which it is not.
func choose(on string, a *rules.Action, owner string, outliers []events.Outlier) (it *Item, unmatched string) {
	if a.On != on {
		return nil, ""
	}
	for i := range outliers {
		o := &outliers[i]
		if owner != "" && o.Rule != owner {
			continue
		}
		if a.If.Matches(verdictOf(o)) {
			return &Item{Action: *a, Owner: owner, Outlier: *o}, ""
		}
		if unmatched == "" {
			unmatched = o.Rule
		}
	}
	return nil, unmatched
}

func verdictOf(o *events.Outlier) *rules.Verdict {
	v := &rules.Verdict{Rule: o.Rule, Delay: time.Duration(o.DelayNS)}
	if e := o.Explained; e != nil {
		v.Cause, v.By, v.ByKind, v.Confidence = e.Cause, e.By, e.ByKind, e.Confidence
		if o.DelayNS > 0 {
			v.Share = float64(e.NS) / float64(o.DelayNS)
		}
	}
	return v
}
