package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Bounds set by the kernel or its tables.
const (
	maxHandlerLen = 31      // HANDLER_NAME_LEN less its NUL
	maxIRQ        = 1 << 20 // far above any machine's
	maxCPU        = 8191    // the largest CONFIG_NR_CPUS
)

// interruptCondition reads the conditions of irq and softirq.
func (r *reader) interruptCondition(key string, n *yaml.Node, m *Match) {
	upTo := func(most uint64) []uint32 {
		return r.ids(n, key, func(v *yaml.Node) (uint64, bool) { return r.number(v, key, 0, most) })
	}
	switch key {
	case "irq":
		m.IRQ = upTo(maxIRQ)
	case "not_irq":
		m.NotIRQ = upTo(maxIRQ)
	case "name":
		m.Name = r.handlers(n, key)
	case "not_name":
		m.NotName = r.handlers(n, key)
	case "vector":
		m.Vector = words(r, n, key, Vectors)
	case "not_vector":
		m.NotVector = words(r, n, key, Vectors)
	case "phase":
		m.Phase = words(r, n, key, []Phase{Raise, Run})
	case "cpu":
		m.CPU = upTo(maxCPU)
	case "not_cpu":
		m.NotCPU = upTo(maxCPU)
	}
}

// interruptContradictions finds conditions that can never hold.
func (r *reader) interruptContradictions(keys map[string]entry, m *Match) {
	among := m.Vector
	if len(among) == 0 {
		among = Vectors
	}
	if len(m.NotVector) > 0 && !slices.ContainsFunc(among,
		func(v Vector) bool { return !slices.Contains(m.NotVector, v) }) {
		r.fail(keys["not_vector"].key, "at least one remaining vector", "not_vector excludes every vector")
	}
}

func (r *reader) handlers(n *yaml.Node, what string) []string {
	r.verdictList(n, "handler")
	return r.globs(n, what, maxHandlerLen, " (handler names are truncated); use * for a prefix",
		func(v *yaml.Node, glob string) bool {
			return r.verdict(v, "handler", glob)
		})
}
