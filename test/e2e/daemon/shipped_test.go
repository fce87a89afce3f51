package daemon

import (
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/tracker/events"
)

// shipped starts a daemon with the rules that come with tailcam, and every system
// call attached to.
func shipped(t *testing.T, args ...string) *running {
	t.Helper()
	h := newHome(t, "")
	rules, err := os.ReadDir("../../../configs/rules.d")
	assert.NilError(t, err)
	assert.NilError(t, os.Remove(h.rules))
	assert.NilError(t, os.Mkdir(h.rules, 0o755))
	for _, f := range rules {
		text := readText(t, "../../../configs/rules.d", f.Name())
		// This kernel may have nothing else: see TestSyscallRulesInactive.
		text = strings.ReplaceAll(text, "track: syscall\n", "track: syscall\n    attach: all\n")
		writeFile(t, h.rules+"/"+f.Name(), text, 0o644)
	}
	return h.start(t, args...)
}

// TestBusy: a busy machine is not spammed.
func TestBusy(t *testing.T) {
	needRoot(t)
	d := shipped(t)
	stop := load(t)
	time.Sleep(10 * time.Second)
	stop()
	taken := map[string][]events.Outlier{}
	limits := map[string]limit{}
	for _, s := range d.list() {
		m := readMeta(t, s.Dir)
		for _, o := range m.Outliers {
			taken[o.Rule] = append(taken[o.Rule], o)
		}
		for _, r := range m.Rules {
			limits[r.Name] = limit{time.Duration(r.Snapshot.EveryNS), r.Snapshot.Burst}
		}
	}
	s := d.status()
	for _, r := range s.Rules {
		t.Logf("%s: %d outliers of %d, %d with a snapshot, %d suppressed", r.Name, r.Outliers, r.Seen, len(taken[r.Name]), r.Suppressed)
		n := uint64(len(taken[r.Name]))
		assert.Check(t, n+r.Suppressed <= r.Outliers,
			"rule %s: %d outliers, but %d with a snapshot and %d suppressed", r.Name, r.Outliers, n, r.Suppressed)
	}
	for name, outliers := range taken {
		sortByExit(outliers)
		limits[name].hold(t, name, outliers)
	}
}
