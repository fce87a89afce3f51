package daemon

import (
	"path/filepath"
	"testing"
)

// withDropIn runs a daemon under the shipped unit with one of its drop-ins.
func withDropIn(t *testing.T, name, rules string) *running {
	t.Helper()
	d := unitHome(t, rules).serve(t, readText(t, shippedUnit), []string{filepath.Join(filepath.Dir(shippedUnit), name)})
	d.watches()
	return d
}

// TestUnitTriggers: with its drop-in, the shipped unit lets the daemon watch the pressure of
// cgroups and the kernel's log.
func TestUnitTriggers(t *testing.T) {
	needRoot(t)
	triggerRules(t, func(rules string) *running { return withDropIn(t, "triggers.conf", rules) })
}
