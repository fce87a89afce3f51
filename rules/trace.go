package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// TraceSource is outliers that other hosts had in traces which this one took part in.
type TraceSource struct {
	Host []string // globs on the name of the other host; empty: all
	Rule []string // globs on the rule that found it there; empty: all
}

const (
	sourceTrace  = "trace"
	maxTraceText = 255 // bytes
)

var traceKeys = []string{"host", "rule"}

// Matches reports whether an outlier of that rule on that host is one to report.
func (s *TraceSource) Matches(host, rule string) bool {
	hit := func(globs []string, value string) bool {
		return len(globs) == 0 || slices.ContainsFunc(globs, func(glob string) bool { return GlobMatch(glob, value) })
	}
	return hit(s.Host, host) && hit(s.Rule, rule)
}

func (r *reader) trace(n *yaml.Node) *TraceSource {
	s := &TraceSource{}
	keys := r.mapping(n, sourceTrace, traceKeys)
	if e, ok := keys["host"]; ok {
		s.Host = r.globs(e.value, "host", maxTraceText, "", nil)
	}
	if e, ok := keys["rule"]; ok {
		s.Rule = r.globs(e.value, "rule", maxTraceText, "", nil)
	}
	return s
}
