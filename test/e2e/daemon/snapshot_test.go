package daemon

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot"
)

// TestWindow: a snapshot holds `before` and `after` of its outlier, no more.
func TestWindow(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "snapshot: {before: 60ms, after: 80ms, every: 10ms}")), "--recorder-size", "4MiB")
	time.Sleep(200 * time.Millisecond) // history to cut off
	naps(t, uid, 1, 40*time.Millisecond, 1)
	m := account(t, d, 1, "nap")[0]
	o := &m.Outliers[0]
	assert.Check(t, m.Window.FromMonoNS == o.StartMono-uint64(60*time.Millisecond) &&
		m.Window.ToMonoNS == o.EndMono+uint64(80*time.Millisecond),
		"window %+v around an outlier from %d to %d", m.Window, o.StartMono, o.EndMono)
	_, events := checkSnapshot(t, filepath.Join(d.snaps, m.ID))
	before, during, after := 0, 0, 0
	for i := range events {
		switch e := &events[i]; {
		case strings.HasPrefix(e.name, "tailcam_"):
		case e.time < o.StartMono:
			before++
		case e.time <= o.EndMono:
			during++
		default:
			after++
		}
	}
	assert.Check(t, before != 0 && during != 0 && after != 0,
		"%d events before, %d during, %d after the outlier", before, during, after)
	for _, c := range m.Coverage {
		assert.Check(t, c.CompleteBefore && c.CompleteAfter && c.FromMonoNS == m.Window.FromMonoNS && c.ToMonoNS == m.Window.ToMonoNS,
			"CPU %d is not covered in full: %+v of %+v, notes %q", c.CPU, c, m.Window, m.Notes)
	}
}

// TestJoin: outliers whose windows overlap share one snapshot.
func TestJoin(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(
		napRule("a", uid, "snapshot: {after: 300ms, every: 1ms, burst: 1000}"),
		napRule("b", uid, "snapshot: {after: 200ms, every: 1ms, burst: 1000}"),
	))
	naps(t, uid, 10, 20*time.Millisecond, 2)
	shared := 0
	for _, m := range account(t, d, 10, "a", "b") {
		names := map[string]bool{}
		for _, o := range m.Outliers {
			names[o.Rule] = true
			assert.Check(t, *o.Snapshot == m.ID, "%s holds an outlier of %s", m.ID, *o.Snapshot)
		}
		for _, r := range m.Rules {
			assert.Check(t, names[r.Name], "%s holds rule %s without an outlier", m.ID, r.Name)
		}
		assert.Check(t, len(m.Rules) == len(names),
			"%s holds %d rules, its outliers are of %d", m.ID, len(m.Rules), len(names))
		shared += len(m.Outliers) - 1
	}
	assert.Check(t, shared != 0, "no outlier shares a snapshot, though both rules fire at the same moment")
}

// TestStacks: what the stacks of an outlier name is the injector's own function.
func TestStacks(t *testing.T) {
	needRoot(t)
	uid := newUID()
	who := "{uid: " + strconv.Itoa(uid) + ", comm: inj-"
	d := start(t, rulesFile(
		entry("sleep", "offcpu", "20ms", who+"offcpu}", "stacks: [kernel, user, waker]", "snapshot: {after: 100ms, every: 1ms, burst: 9}"),
		entry("nap", "syscall", "20ms", who+"syscall}", "stacks: [kernel, user]", "snapshot: {after: 100ms, every: 1ms, burst: 9}"),
	))
	// Three that are slow, and many between them that are not: the names of its
	// functions can only be read while the process is there.
	provoke(t, uid, "offcpu", "sleep", "3", "30000", "300", "1000", "1")
	provoke(t, uid, "syscall", "sleep", "3", "30000", "300", "1000", "1")
	for name, want := range map[string][]string{
		"sleep": {"inj-offcpu;", "inject_offcpu_sleep", "do_syscall_64", "nanosleep"},
		"nap":   {"inj-syscall;", "inject_syscall_sleep", "do_syscall_64"},
	} {
		var folded string
		eventually(t, "a snapshot of "+name+" names the injector's function", func() bool {
			for _, s := range d.list() {
				for line := range strings.Lines(readText(t, s.Dir, snapshot.FoldedFile)) {
					if strings.HasPrefix(line, want[0]) && strings.Contains(line, want[1]) {
						folded = line
					}
				}
			}
			return folded != ""
		})
		// From the outermost to the innermost, then the weight.
		rest := folded
		for _, w := range want {
			_, after, ok := strings.Cut(rest, w)
			assert.Check(t, ok, "rule %s: %q is missing in %q, or stands too early", name, w, folded)
			rest = after
		}
		weight := folded[strings.LastIndexByte(folded, ' ')+1:]
		n, err := strconv.Atoi(strings.TrimSpace(weight))
		assert.Check(t, err == nil && n >= int(20*time.Millisecond),
			"rule %s: %q does not end with a delay past the threshold", name, folded)
	}
}

// TestByHand: a snapshot without an outlier.
func TestByHand(t *testing.T) {
	needRoot(t)
	d := start(t, rulesFile(napRule("nap", newUID())))
	landmark := runTrue(t)
	dir := strings.TrimSpace(d.ok("snapshot", "--reason", "as the pager rang; \"twice\""))
	m, events := checkSnapshot(t, dir)
	assert.Check(t, m.Reason == "as the pager rang; \"twice\"" && m.Rule == "manual" && len(m.Outliers) == 0,
		"snapshot.json tells of rule %s, reason %s, %d outliers", m.Rule, m.Reason, len(m.Outliers))
	knows(t, events, landmark, m.Window.ToMonoNS)
	list := d.list()
	assert.Check(t, len(list) == 1 && list[0].Dir == dir && list[0].Reason == m.Reason && list[0].ID == m.ID &&
		list[0].Bytes != 0, "list snapshots: %+v", list)
}
