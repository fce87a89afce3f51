package rules

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// targetKeys are those of target. TargetGlobs are those of its globs.
var (
	targetKeys = append([]string{"pid", "last"}, TargetGlobs...)

	TargetGlobs = []string{"cgroup", "unit", "container", "pod", "namespace", "activity"}
)

// NewTarget is the target of one glob for each of some TargetGlobs. Errors say what is allowed.
func NewTarget(globs map[string]string) (Target, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range TargetGlobs {
		if glob, ok := globs[key]; ok {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: glob})
		}
	}
	r := &reader{}
	t := r.target(n)
	if len(r.errs) > 0 {
		return Target{}, errors.New(r.errs[0].text())
	}
	return t, nil
}

// target reads the conditions of target.
func (r *reader) target(n *yaml.Node) (t Target) {
	keys := r.mapping(n, "target", targetKeys)
	if keys == nil {
		return t
	}
	if e, ok := keys["last"]; ok {
		t.Last = r.duration(e.value, "last", minDuration, maxDuration)
	}
	if e, ok := keys["pid"]; ok {
		pid, _ := r.number(e.value, "pid", 1, maxPID)
		t.PID = uint32(pid)
	}
	for _, to := range []struct {
		key  string
		list *[]string
	}{
		{"cgroup", &t.Places.Cgroup}, {"unit", &t.Places.Unit}, {"container", &t.Places.Container},
		{"pod", &t.Places.Pod}, {"namespace", &t.Places.Namespace}, {"activity", &t.Activity},
	} {
		e, ok := keys[to.key]
		switch {
		case !ok:
		case t.PID != 0:
			r.fail(e.key, "pid alone, or conditions without pid", "%s cannot be combined with pid", to.key)
		default:
			*to.list = r.targetGlobs(e.value, to.key)
		}
	}
	return t
}

// targetGlobs reads globs as in when. They need no room in the kernel side's tables.
func (r *reader) targetGlobs(n *yaml.Node, what string) []string {
	if what == "activity" {
		return r.globs(n, what, MaxActivityName, " (names of activities are no longer); use * for a prefix", nil)
	}
	return r.globs(n, what, maxPlaceLen, "", func(v *yaml.Node, glob string) bool {
		switch {
		case what == "cgroup" && !strings.HasPrefix(glob, "/"):
			r.fail(v, "a cgroup v2 path from its root, such as /system.slice/**", "%s %q does not begin with /", what, cut(glob))
		case what == "unit" && !unitGlob(glob):
			r.fail(v, "a unit with its type, such as "+glob+".service, or a glob such as "+glob+".*", "%s %q has no type", what, cut(glob))
		default:
			return true
		}
		return false
	})
}

// activityTarget rejects activities where the source names a task, which may be gone.
func (r *reader) activityTarget(n *yaml.Node, t *TriggerSpec) {
	if len(t.Target.Activity) > 0 && (len(t.Kmsg) > 0 || t.Coredump != nil || t.Trace != nil) {
		r.fail(n, "on: psi, probe, alert", "target: activity does not apply to %s, which names tasks itself", t.Source())
	}
}
