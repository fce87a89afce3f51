package rules

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AlertSource is alerts of Prometheus that its Alertmanager sends.
type AlertSource struct {
	Name   []string     // globs on the label alertname; empty: all
	Labels []AlertLabel // all must match
}

// AlertLabel is a condition on one label of an alert.
type AlertLabel struct {
	Name  string
	Value []string // globs; a label that the alert does not have is the empty string
}

const (
	sourceAlert    = "alert"
	maxAlertLabels = 32
	maxAlertText   = 255 // bytes
	nameLabel      = "alertname"
)

var (
	alertKeys = []string{"name", "labels"}
	labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,254}$`)
)

// Matches reports whether an alert with these labels is one to report.
func (a *AlertSource) Matches(labels map[string]string) bool {
	hit := func(globs []string, value string) bool {
		return len(globs) == 0 || slices.ContainsFunc(globs, func(glob string) bool { return GlobMatch(glob, value) })
	}
	return hit(a.Name, labels[nameLabel]) &&
		!slices.ContainsFunc(a.Labels, func(l AlertLabel) bool { return !hit(l.Value, labels[l.Name]) })
}

func (r *reader) alert(n *yaml.Node) *AlertSource {
	a := &AlertSource{}
	keys := r.mapping(n, sourceAlert, alertKeys)
	if e, ok := keys["name"]; ok {
		a.Name = r.globs(e.value, "name", maxAlertText, "", nil)
	}
	e, ok := keys["labels"]
	if !ok {
		return a
	}
	if e.value.Kind != yaml.MappingNode {
		r.fail(e.value, "a mapping of label names to globs", "labels is %s", kindOf(e.value))
		return a
	}
	if len(e.value.Content) > 2*maxAlertLabels {
		r.fail(e.value, "at most 32", "too many labels")
		return a
	}
	for i := 0; i+1 < len(e.value.Content); i += 2 {
		key, value := e.value.Content[i], e.value.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || !labelName.MatchString(key.Value):
			r.fail(key, "letters, digits and _, such as severity", "invalid label name %q", cut(key.Value))
		case slices.ContainsFunc(a.Labels, func(l AlertLabel) bool { return l.Name == key.Value }):
			r.fail(key, "each label once, with a list of globs", "duplicate label %s", cut(key.Value))
		default:
			a.Labels = append(a.Labels, AlertLabel{key.Value, r.globs(value, "label "+key.Value, maxAlertText, "", nil)})
		}
	}
	slices.SortFunc(a.Labels, func(a, b AlertLabel) int { return strings.Compare(a.Name, b.Name) })
	return a
}
