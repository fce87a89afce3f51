package rules

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits of the kernel side; see KernelLimits.
const (
	MaxSpanKey  = 63  // bytes of a span's key
	MaxKeyGlobs = 128 // globs on keys in all rules
)

// spanKeys reads globs on the keys of spans.
func (r *reader) spanKeys(n *yaml.Node, what string) []string {
	return r.globs(n, what, MaxSpanKey, " (the longest key); use * for a prefix", func(v *yaml.Node, _ string) bool {
		r.keyGlobs++
		if r.keyGlobs == MaxKeyGlobs+1 {
			r.fail(v, fmt.Sprintf("at most %d in all rules", MaxKeyGlobs), "too many key globs")
		}
		return true
	})
}
