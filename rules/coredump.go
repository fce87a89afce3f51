package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// CoredumpSource is processes that end by a signal whose default action is to dump core,
// signal(7).
type CoredumpSource struct {
	Signals []string // such as SIGSEGV; empty: all of them
	Comm    []string // globs on the thread that got the signal; empty: all
	// Undumped: also those of which the kernel wrote no core, because of RLIMIT_CORE, of
	// PR_SET_DUMPABLE, or of where core_pattern points.
	Undumped bool
}

const sourceCoredump = "coredump"

// CoreSignals are the signals with that default action (SIG_KERNEL_COREDUMP_MASK in the
// kernel's include/linux/signal.h).
var CoreSignals = []string{
	"SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGFPE", "SIGSEGV", "SIGBUS", "SIGSYS", "SIGXCPU", "SIGXFSZ",
}

var coredumpKeys = []string{"signals", "comm", "undumped"}

func (r *reader) coredump(n *yaml.Node) *CoredumpSource {
	c := &CoredumpSource{}
	keys := r.mapping(n, sourceCoredump, coredumpKeys)
	if e, ok := keys["signals"]; ok {
		c.Signals = words(r, e.value, "signals", CoreSignals)
	}
	if e, ok := keys["comm"]; ok {
		c.Comm = r.globs(e.value, "comm", maxCommLen, " (the kernel truncates task names); use * for a prefix", nil)
	}
	if e, ok := keys["undumped"]; ok {
		c.Undumped, _ = r.boolean(e.value, "undumped")
	}
	return c
}

// Wants reports whether a death is one to report.
func (c *CoredumpSource) Wants(signal, comm string, dumped bool) bool {
	return (dumped || c.Undumped) && (len(c.Signals) == 0 || slices.Contains(c.Signals, signal)) &&
		(len(c.Comm) == 0 || slices.ContainsFunc(c.Comm, func(glob string) bool { return GlobMatch(glob, comm) }))
}
