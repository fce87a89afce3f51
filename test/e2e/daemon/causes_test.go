package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/test/support/cleanup"
	cgroups "github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker/events"
)

// hogIn runs a program in a cgroup until the test ends.
func hogIn(t *testing.T, dir, script string) int {
	t.Helper()
	return background(t, "sh", "-c", `echo $$ >"$0/cgroup.procs" && exec `+script, dir)
}

// TestTriggerRules: pressure in a cgroup and an out-of-memory kill take snapshots like any
// rule's outliers, each explained for its target and followed by its actions. A reload
// changes them.
func TestTriggerRules(t *testing.T) {
	needRoot(t)
	notUnderUnit(t, "the kernel's log and the files of cgroups need the drop-in triggers.conf")
	root := cgroups.Hierarchy("")
	if root == "" {
		t.Skip("needs cgroup v2 mounted whole (mount -t cgroup2 none /sys/fs/cgroup/unified)")
	}
	memory := cgroups.NewCgroup(t, "memory")
	memory.Set(t, "memory.limit_in_bytes", "memory.max", "16M")
	path := fmt.Sprintf("/tailcam-causes-%d", os.Getpid())
	dir := root + path
	assert.NilError(t, os.Mkdir(dir, 0o755))
	cleanup.RemoveCgroup(t, dir)
	pressure := func(every string) string {
		return fmt.Sprintf(`  - {name: pressure, track: trigger, on: {psi: {cgroup: %s, cpu: "some 1ms 2s"}}, target: {cgroup: [%s]}, `+
			`snapshot: {after: 20ms, every: %s}, actions: [{run: [/usr/bin/touch, acted]}]}`+"\n", path, path, every)
	}
	const oom, gone = "  - {name: oom, track: trigger, on: oom}\n",
		"  - {name: gone, track: trigger, on: {psi: {cgroup: /tailcam-no-such, memory: \"some 1ms 2s\"}}}\n"
	d := start(t, rulesFile(napRule("nap", newUID()), pressure("1h"), oom, gone))
	eventually(t, "the missing cgroup is told", func() bool { return strings.Contains(d.status().rule("gone").Inactive, "no such file") })

	hogs := []int{hogIn(t, dir, "taskset -c 0 sh -c 'while :; do :; done'"), hogIn(t, dir, "taskset -c 0 sh -c 'while :; do :; done'")}
	victim := hogIn(t, memory.Dir, "tail /dev/zero")
	o := explainedOutlier(d, "pressure", func(o *events.Outlier) bool { return true })
	assert.Check(t, slices.Contains(hogs, o.Task.TID) && o.Task.Cgroup == path && o.DelayNS == 2e9, "%+v", o.Task)
	assert.Check(t, o.Trigger.Source == "psi" && strings.Contains(o.Trigger.Reason, "cpu pressure of "+path), "%+v", o.Trigger)
	assert.Check(t, strings.HasPrefix(o.Explained.Verdict, "the last 2.00 s of "), "%q", o.Explained.Verdict)
	eventually(t, "the action", func() bool {
		_, err := os.Stat(filepath.Join(d.snaps, *o.Snapshot, "acted"))
		return err == nil
	})
	m, err := snapshot.ReadMeta(filepath.Join(d.snaps, *o.Snapshot))
	assert.Assert(t, err == nil && len(m.Rules) == 1 && m.Rules[0].Trigger.PSI[0].WindowNS == 2e9, "%v, %+v", err, m)

	o = explainedOutlier(d, "oom", func(o *events.Outlier) bool { return o.Task.PID == victim })
	assert.Check(t, o.Task.Comm == "tail" && strings.Contains(o.Trigger.Reason, "Killed process"), "%+v", o)

	d.ok("pause", "pressure")
	paused := d.status().rule("pressure").Outliers
	d.ok("resume", "pressure")
	eventually(t, "more pressure", func() bool { return d.status().rule("pressure").Outliers > paused })
	assert.Check(t, d.status().loss("snapshot_limited", "pressure") > 0, "one an hour")
	got := d.verb("threshold", "set", "pressure", "5ms")
	assert.Check(t, got.code == 1 && strings.Contains(got.err, "is a trigger"), "%+v", got)

	taken := len(d.list())
	assert.NilError(t, os.WriteFile(d.rules, []byte(rulesFile(napRule("nap", newUID()), pressure("1s"))), 0o644))
	d.ok("reload")
	eventually(t, "a snapshot under the new limit", func() bool { return len(d.list()) > taken })
	assert.Check(t, !slices.ContainsFunc(d.status().Rules, func(r api.RuleInfo) bool { return r.Name == "oom" }))
}

// explainedOutlier waits for an outlier of a rule with its verdict.
func explainedOutlier(d *running, rule string, is func(*events.Outlier) bool) (found events.Outlier) {
	d.t.Helper()
	eventually(d.t, "an outlier of "+rule, func() bool {
		for _, o := range d.events(rule) {
			if is(&o) && o.Explained != nil && o.Snapshot != nil {
				found = o
				return true
			}
		}
		return false
	})
	return found
}
