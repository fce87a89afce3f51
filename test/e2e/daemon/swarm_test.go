package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cleanup"
	cgroups "github.com/tailcam/tailcam/test/support/provoke"
)

// swarm runs testdata/swarm.c as a user.
func swarm(t *testing.T, program string, uid int, args ...string) (n int, took time.Duration) {
	t.Helper()
	a := asUser(t, uid, uid, append([]string{program}, args...)...)
	assert.Assert(t, a.code == 0, "swarm %v: %+v", args, a)
	_, err := fmt.Sscan(a.out, &n, &took)
	assert.NilError(t, err)
	return n, took
}

// accounted is what has become of a rule's outliers, without those of which it is not
// known yet.
func (s *status) accounted(rule string) uint64 {
	r := s.rule(rule)
	return r.Outliers + s.loss("outlier_limited", rule) + s.loss("ring_buffer_full", rule) +
		s.loss("table_full", rule) + s.loss("outlier_dropped", rule)
}

// TestFiresAtEveryCall: a rule that fires at each of 200,000 system calls, as fast as a
// program can make them, costs its own outliers only: each is told or counted.
func TestFiresAtEveryCall(t *testing.T) {
	needRoot(t)
	program := buildC(t, "swarm")
	uid, other := newUID(), newUID()
	d := start(t, rulesFile(
		entry("every", "syscall", "1us", fmt.Sprintf("{uid: %d, comm: swarm, syscall: read}", uid), "stacks: [kernel, user]", "snapshot: false"),
		napRule("nap", other, "snapshot: false")))
	files := openFiles(t, d.pid())
	const calls = 200_000
	d.pause() // else it pauses the rule
	_, took := swarm(t, program, uid, "calls", strconv.Itoa(calls))
	naps(t, other, 5, 2*time.Millisecond, 1)
	d.resume()
	t.Logf("%d calls took %s: %.0f outliers a second", calls, took, calls/took.Seconds())
	eventually(t, "all outliers are accounted for", func() bool { return d.status().accounted("every") >= calls })
	s := d.status()
	const own = 10 // reads at the program's start
	assert.Check(t, s.accounted("every") <= calls+own, "%d of %d are accounted for: %+v", s.accounted("every"), calls, s.rule("every"))
	assert.Check(t, s.loss("outlier_limited", "every") > calls/2, "hardly any was limited: %d", s.loss("outlier_limited", "every"))
	settled(t, d, "nap", 5)

	// The same with a daemon that runs: it pauses the rule.
	eventually(t, "the rule is paused", func() bool {
		swarm(t, program, uid, "calls", strconv.Itoa(calls/5))
		return d.status().rule("every").Storm != nil
	})
	naps(t, other, 5, 2*time.Millisecond, 1)
	settled(t, d, "nap", 10)
	assert.Check(t, openFiles(t, d.pid()) <= files+20, "%d descriptors, before %d", openFiles(t, d.pid()), files)
}

// TestForkStorm: 20,000 processes that come and go use up no pending table, descriptor or
// thread, and the naps of a few of them are told.
func TestForkStorm(t *testing.T) {
	needRoot(t)
	program := buildC(t, "swarm")
	uid := newUID()
	d := start(t, rulesFile(
		uidRule("nap", uid, "stacks: [kernel, user]", "snapshot: {after: 5ms, every: 1s}"),
		entry("late", "wakeup", "1h", `{comm: ["*"]}`), entry("sleep", "offcpu", "1h", `{comm: ["*"]}`)))
	files, helpers := openFiles(t, d.pid()), len(children(t, d.pid()))
	const forks = 20_000
	n, took := swarm(t, program, uid, "forks", strconv.Itoa(forks), "200", "20000")
	t.Logf("%d processes in %s, of which %d napped", forks, took, n)
	assert.Assert(t, n == forks/200)
	eventually(t, "all naps are accounted for", func() bool { return d.status().accounted("nap") >= uint64(n) })
	s := d.status()
	r := s.rule("nap")
	assert.Check(t, r.Outliers == uint64(n), "%d of %d naps were told: %+v", r.Outliers, n, s.Losses)
	for _, rule := range []string{"late", "sleep", "nap"} {
		assert.Check(t, s.loss("table_full", rule) == 0, "the pending table of %s was full", rule)
	}
	settled(t, d, "nap", n)
	for _, table := range s.Tables {
		assert.Check(t, table.Used < forks/4, "pending table %s holds %d entries", table.Name, table.Used)
	}
	assert.Check(t, openFiles(t, d.pid()) <= files+50, "%d descriptors, before %d", openFiles(t, d.pid()), files)
	assert.Check(t, len(children(t, d.pid())) <= helpers+20, "%d helpers, before %d", len(children(t, d.pid())), helpers)
}

// TestManyCgroups: 10,000 containers that come and go take no memory and no descriptors
// for ever. The naps in some of them are told with the container's path, or counted if
// it was gone before anybody could ask for it.
func TestManyCgroups(t *testing.T) {
	needRoot(t)
	root := cgroups.NeedHierarchy(t)
	base := filepath.Join(root, fmt.Sprintf("tailcam-test-%d", os.Getpid()))
	assert.NilError(t, os.Mkdir(base, 0o755))
	cleanup.KillCgroup(t, base)
	uid := newUID()
	d := start(t, rulesFile(
		uidRule("any", uid, "snapshot: false"),
		entry("inside", "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep, cgroup: [/%s/**]}", uid, filepath.Base(base)),
			"snapshot: false")))
	files, before := openFiles(t, d.pid()), residentMiB(t, d.pid())
	const groups, every = 10_000, 200
	n, begin := 0, time.Now()
	for i := range groups {
		dir := filepath.Join(base, "pod"+strconv.Itoa(i))
		assert.NilError(t, os.Mkdir(dir, 0o755))
		if i%every == 0 {
			napIn(t, dir, uid)
			n++
		}
		// What has just run in it may not be gone for the kernel.
		eventually(t, "the cgroup can be removed", func() bool { return os.Remove(dir) == nil })
	}
	t.Logf("%d cgroups in %s", groups, time.Since(begin).Round(time.Millisecond))
	settled(t, d, "any", n)
	eventually(t, "all are accounted for", func() bool {
		s := d.status()
		return s.accounted("inside")+s.loss("cgroup_gone", "inside") >= uint64(n)
	})
	s := d.status()
	told, gone := s.rule("inside").Outliers, s.loss("cgroup_gone", "inside")
	t.Logf("%d of %d naps were told, for %d the cgroup was gone", told, n, gone)
	assert.Check(t, told+gone == uint64(n), "%d told and %d counted are not %d", told, gone, n)
	for _, o := range d.events("inside") {
		assert.Check(t, strings.HasPrefix(o.Task.Cgroup, "/"+filepath.Base(base)+"/pod"), "cgroup %q", o.Task.Cgroup)
	}
	after := residentMiB(t, d.pid())
	assert.Check(t, after < before+64, "RSS grew from %d to %d MiB", before, after)
	assert.Check(t, openFiles(t, d.pid()) <= files+20, "%d descriptors, before %d", openFiles(t, d.pid()), files)
}

// napIn naps for 20 ms in a cgroup.
func napIn(t *testing.T, dir string, uid int) {
	t.Helper()
	group, err := os.Open(dir)
	assert.NilError(t, err)
	defer group.Close()
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "0.02")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, UseCgroupFD: true, CgroupFD: int(group.Fd()),
	}
	assert.NilError(t, cmd.Run())
}

// residentMiB is the resident memory of a process.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(readText(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			assert.NilError(t, err)
			return kib >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
