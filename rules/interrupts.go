package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Bounds set by the kernel or its tables.
const (
	maxWorkName  = 31      // HANDLER_NAME_LEN less its NUL
	maxSymbolLen = 255     // less than KSYM_NAME_LEN; bounds the time that a symbol takes to match
	maxIRQ       = 1 << 20 // far above any machine's
	maxCPU       = 8191    // the largest CONFIG_NR_CPUS
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
		m.Name = r.workNames(n, key)
	case "not_name":
		m.NotName = r.workNames(n, key)
	case "vector":
		m.Vector = words(r, n, key, Vectors)
	case "not_vector":
		m.NotVector = words(r, n, key, Vectors)
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

// workNames reads globs over the name of what is tracked: an interrupt handler, a work queue.
func (r *reader) workNames(n *yaml.Node, what string) []string {
	return r.verdictGlobs(n, what, "name", maxWorkName, " (names are truncated); use * for a prefix")
}

// functions reads globs over symbols of the kernel.
func (r *reader) functions(n *yaml.Node, what string) []string {
	return r.verdictGlobs(n, what, "function", maxSymbolLen, "")
}

func (r *reader) verdictGlobs(n *yaml.Node, what, kind string, most int, tooLong string) []string {
	r.verdictList(n, kind)
	return r.globs(n, what, most, tooLong, func(v *yaml.Node, glob string) bool { return r.verdict(v, kind, glob) })
}

// phase reads the phases of a tracker; of all, where the tracker is not known.
func (r *reader) phase(n *yaml.Node, track Track) []Phase {
	allowed := Phases(track)
	if allowed == nil {
		allowed = []Phase{Raise, Wait, Run}
	}
	return words(r, n, "phase", allowed)
}
