package rules

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits of the kernel side; see KernelLimits.
const (
	MaxSpanKey  = 63  // bytes of a span's key
	MaxKeyGlobs = 128 // globs over keys, all rules together
)

// spanKeys reads globs over the keys of spans.
func (r *reader) spanKeys(n *yaml.Node, what string) []string {
	return r.globs(n, what, MaxSpanKey, ", as a key has no more; end it with *", func(v *yaml.Node, _ string) bool {
		r.keyGlobs++
		if r.keyGlobs == MaxKeyGlobs+1 {
			r.fail(v, fmt.Sprintf("%d globs over keys, all rules together", MaxKeyGlobs), "too many globs over keys")
		}
		return true
	})
}
