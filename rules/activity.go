package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Activity is the track of requests and other units of work that programs mark by tokens.
// The daemon serves it, from the accounts of tokens: it is not one of Tracks.
const Activity Track = "activity"

// MaxActivityName is how many bytes the name of an activity has at most.
const MaxActivityName = 31

// Activities returns the rules of track activity.
func Activities(list []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(list), func(r Rule) bool { return r.Track != Activity })
}

// WithoutActivities tells what a rule does not do while the daemon has no activities; empty:
// it needs none.
func (r *Rule) WithoutActivities() string {
	switch {
	case r.Track == Activity:
		return "track activity watches nothing"
	case r.Pair != nil && r.Pair.Activity != "":
		return "activity of the pair begins none: it only finds slow pairs"
	case r.Trigger != nil && len(r.Trigger.Target.Activity) > 0:
		return "target.activity finds no thread: snapshots explain nobody"
	}
	return ""
}

// activity rejects what the account of a token cannot have.
func (r *reader) activity(keys map[string]entry, rule *Rule) {
	if rule.Track != Activity {
		return
	}
	rule.Stacks = nil
	for _, key := range []string{"stacks", "ratchet"} {
		if e, ok := keys[key]; ok {
			r.fail(e.key, "threshold, timeout, repeat, when, overrides, histogram, snapshot, actions", "%s does not apply to track activity", key)
		}
	}
}

// activityNames reads globs over names of activities.
func (r *reader) activityNames(key string, n *yaml.Node, m *Match) {
	to := &m.Name
	if key == "not_name" {
		to = &m.NotName
	}
	*to = r.globs(n, key, MaxActivityName, " (names of activities are no longer); use * for a prefix", nil)
}
