package detect

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// newCgroup makes one, to be removed at the end of the test, and returns its
// path for rules, and its directory.
func newCgroup(t *testing.T, name string) (path string, dir string) {
	t.Helper()
	root := provoke.NeedHierarchy(t)
	path = fmt.Sprintf("/tailcam-detect-%d/%s", os.Getpid(), name)
	dir = filepath.Join(root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skipf("needs to make cgroups: %v", err)
	}
	t.Cleanup(func() {
		assert.Check(t, os.Remove(dir))
		os.Remove(filepath.Dir(dir)) // the last one can
	})
	return path, dir
}

// runIn injects from within a cgroup.
func runIn(t *testing.T, dir string, args ...string) []inject.Event {
	t.Helper()
	f, err := os.Open(dir)
	assert.NilError(t, err)
	defer f.Close()
	return inject.RunWith(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	}, args...)
}

// cgroupRules are rules on one cgroup and the others of this test.
func cgroupRules() []condition {
	parent := fmt.Sprintf("/tailcam-detect-%d", os.Getpid())
	when := func(cgroups, not []string) rules.Match {
		return rules.Match{Comm: []string{"inj-offcpu"}, Cgroup: cgroups, NotCgroup: not}
	}
	return []condition{
		{"exact", when([]string{parent + "/in"}, nil), true},
		{"glob", when([]string{"/nothing", "/tailcam-*/i?"}, nil), true},
		{"deep", when([]string{"/tailcam-detect-*/**"}, nil), true},
		{"other", when([]string{parent + "/out", "/in"}, nil), false},
		{"not-other", when(nil, []string{parent + "/out"}), true},
		{"not", when(nil, []string{"/nothing", parent + "/in"}), false},
		{"both", when([]string{parent + "/*"}, []string{"/**/in"}), false},
		{"never", rules.Match{Comm: []string{"nobody-has-this"}, Cgroup: []string{"/**"}}, false},
	}
}

// A cgroup that existed when the rules were loaded is decided in the kernel.
func TestCgroupFromBefore(t *testing.T) {
	needRoot(t)
	path, dir := newCgroup(t, "in")
	table := cgroupRules()
	c := watch(t, ruleSet(rules.OffCPU, table), nil)
	events := runIn(t, dir, "offcpu", "all", "24", micros(over), "48", micros(under), "8")
	reports := c.settle()
	c.checkTable(t, table, events, reports)
	for _, o := range reports {
		assert.Check(t, is.Equal(o.Task.Cgroup, path), "task in cgroup")
	}
	for name, k := range c.counters().Rules {
		assert.Check(t, k.Undecided == 0,
			"rule %s: the daemon had to decide %d times on a cgroup that it knew", name, k.Undecided)
	}
}

// A cgroup that came later is decided by the daemon, once, and then in the kernel.
func TestCgroupFromLater(t *testing.T) {
	needRoot(t)
	table := cgroupRules()
	c := watch(t, ruleSet(rules.OffCPU, table), nil)
	_, dir := newCgroup(t, "in")
	first := runIn(t, dir, "offcpu", "sleep", "1", micros(over), "0", "1", "1")
	c.eventually("the daemon has decided", func() error {
		for _, row := range table {
			if k := c.counters().Rules[row.name]; row.name != "never" && k.Undecided == 0 {
				return fmt.Errorf("rule %s: %+v", row.name, k)
			}
		}
		return nil
	})
	c.arrived()
	decided := c.counters()
	events := slices.Concat(first, runIn(t, dir, "offcpu", "all", "24", micros(over), "48", micros(under), "8"))
	c.checkTable(t, table, events, c.settle())
	later := c.counters()
	for _, row := range table {
		was, is := decided.Rules[row.name].Undecided, later.Rules[row.name].Undecided
		want := uint64(1)
		if row.name == "never" {
			want = 0 // its other condition is certain
		}
		assert.Check(t, was == want && is == want,
			"rule %s: the daemon decided %d times, then %d times, want %d", row.name, was, is, want)
	}

	// What it is told of one cgroup says nothing of the next.
	_, out := newCgroup(t, "out")
	before := len(c.settle())
	events = runIn(t, out, "offcpu", "sleep", "8", micros(over), "8", micros(under), "1")
	reports := c.since(before)
	for name, want := range map[string]bool{"exact": false, "glob": false, "deep": true, "other": true, "not-other": false, "not": true, "both": true} {
		c.checkTable(t, []condition{{name, rules.Match{}, want}}, events, reports)
	}
}

// Overrides that depend on a cgroup which the kernel side does not know.
func TestCgroupInOverride(t *testing.T) {
	needRoot(t)
	in := rules.Match{Cgroup: []string{"/tailcam-detect-*/in"}}
	list := []rules.Rule{
		{Name: "lower", Track: rules.OffCPU, Threshold: 10 * over, Overrides: []rules.Override{{When: in, Threshold: threshold}}},
		{Name: "higher", Track: rules.OffCPU, Threshold: threshold, Overrides: []rules.Override{{When: in, Threshold: 10 * over}}},
	}
	for i := range list {
		list[i].When = rules.Match{Comm: []string{"inj-offcpu"}}
	}
	c := watch(t, append(list, last(rules.OffCPU)), nil)
	for name, reported := range map[string]string{"in": "lower", "out": "higher"} {
		_, dir := newCgroup(t, name)
		before := len(c.settle())
		events := runIn(t, dir, "offcpu", "all", "24", micros(over), "48", micros(under), "8")
		reports := c.since(before)
		for _, rule := range []string{"lower", "higher"} {
			c.checkTable(t, []condition{{rule, rules.Match{}, rule == reported}}, events, reports)
		}
	}
}
