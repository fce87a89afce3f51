package accuracy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/cleanup"
	"github.com/tailcam/tailcam/test/support/slowirq"
)

// resources are what several scenarios use, made when the first one needs it
// and taken apart at the end of the whole test.
type resources struct {
	t    *testing.T
	disk *slowDisk
	pg   string // PostgreSQL's socket
}

func (s *resources) theDisk() *slowDisk {
	if s.disk == nil {
		s.disk = startDisk(s.t)
	}
	return s.disk
}

// withDisk hands the program the slow disk itself.
func (s *resources) withDisk(read, write, sync time.Duration) func(*testing.T, *round) {
	return func(_ *testing.T, r *round) {
		s.theDisk().slow(read, write, sync)
		r.argument = "/dev/" + s.theDisk().device
	}
}

// withFiles hands it a directory of the file system on it.
func (s *resources) withFiles(read, write, sync time.Duration) func(*testing.T, *round) {
	return func(t *testing.T, r *round) {
		d := s.theDisk()
		d.slow(0, 0, 0)
		dir, err := os.MkdirTemp(d.dir(), "files-")
		assert.NilError(t, err)
		syncFS(t, dir)
		d.slow(read, write, sync)
		t.Cleanup(func() {
			d.slow(0, 0, 0)
			assert.Check(t, os.RemoveAll(dir))
			syncFS(t, d.dir())
		})
		r.argument = dir
	}
}

func syncFS(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, unix.Syncfs(int(f.Fd())))
}

// withLongWork makes the first work of ext4's queue long: it begins a handle of
// the file system's journal.
func (s *resources) withLongWork(t *testing.T, r *round) {
	s.withFiles(0, 0, 0)(t, r)
	ours := slowirq.Filter{Arg: slowirq.Any, Struct: "super_block", Field: "s_dev", Bytes: 4, Value: s.disk.number}
	spins("ext4_journal_start_reserved", ours, 300*time.Millisecond, false)(t, r)
}

// ------------------------------------------------------------------- cgroups

func (s *resources) groupName() string { return fmt.Sprintf("tailcam-scenario-%d", os.Getpid()) }

// newGroup makes a cgroup with a controller, of whichever version the machine
// has, and sets its files: names of version 2, values by name of version 1.
func newGroup(t *testing.T, controller string, v1, v2 [][2]string) string {
	t.Helper()
	root, old := controllerRoot(t, controller)
	dir, err := os.MkdirTemp(root, fmt.Sprintf("tailcam-scenario-%d-", os.Getpid()))
	assert.NilError(t, err)
	cleanup.RemoveCgroup(t, dir)
	files := v2
	if old {
		files = v1
	}
	for _, f := range files {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, f[0]), []byte(f[1]), 0))
	}
	return dir
}

// controllerRoot is where a controller is mounted; old: as one of version 1.
func controllerRoot(t *testing.T, controller string) (root string, old bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		mount, kind := strings.Fields(before)[4], strings.Fields(after)
		switch {
		case kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), controller):
			return mount, true
		case kind[0] == "cgroup2" && enabled(t, mount, controller):
			return mount, false
		}
	}
	t.Fatalf("no cgroup controller %s is mounted", controller)
	return "", false
}

// enabled tells whether cgroups below a root of version 2 have a controller, and
// lets them for the time of the test.
func enabled(t *testing.T, root, controller string) bool {
	t.Helper()
	if controller == "freezer" { // always there, but a kernel with version 1 uses that
		_, err := os.Stat(filepath.Join(filepath.Dir(root), "freezer"))
		return err != nil
	}
	all, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil || !slices.Contains(strings.Fields(string(all)), controller) {
		return false
	}
	file := filepath.Join(root, "cgroup.subtree_control")
	now, err := os.ReadFile(file)
	assert.NilError(t, err)
	if slices.Contains(strings.Fields(string(now)), controller) {
		return true
	}
	assert.NilError(t, os.WriteFile(file, []byte("+"+controller), 0))
	t.Cleanup(func() {
		assert.Check(t, os.WriteFile(file, []byte("-"+controller), 0))
	})
	return true
}

func withQuota(t *testing.T, r *round) {
	r.argument = newGroup(t, "cpu", [][2]string{{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "10000"}},
		[][2]string{{"cpu.max", "10000 100000"}})
}

// withWeight lets the program's ordinary tasks go before nearly all that others
// do on the machine meanwhile.
func withWeight(t *testing.T, r *round) {
	r.env = []string{"SCENARIO_GROUP=" + newGroup(t, "cpu", [][2]string{{"cpu.shares", "262144"}}, [][2]string{{"cpu.weight", "10000"}})}
}

func withFreezer(t *testing.T, r *round) { r.argument = newGroup(t, "freezer", nil, nil) }

// withLittleMemory gives the program less memory than it writes to a slow disk.
func (s *resources) withLittleMemory(t *testing.T, r *round) {
	limit := strconv.Itoa(32 << 20)
	group := newGroup(t, "memory", [][2]string{{"memory.limit_in_bytes", limit}}, [][2]string{{"memory.max", limit}})
	s.withFiles(0, 10*time.Millisecond, 0)(t, r)
	r.env = []string{"SCENARIO_CGROUP=" + group}
}

// ---------------------------------------------------------------------- CPUs

// quietCPUs are the two that had least to do just now, but never the first one
// of the machine if that can be: it serves most interrupts.
func quietCPUs(t *testing.T) (cpu, other int) {
	t.Helper()
	before := idle(t)
	time.Sleep(100 * time.Millisecond)
	after := idle(t)
	var set unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &set))
	var list []int
	for n := range after {
		if set.IsSet(n) {
			list = append(list, n)
		}
	}
	if len(list) < 2 {
		t.Skip("needs two CPUs")
	}
	slices.SortFunc(list, func(a, b int) int { return (after[b] - before[b]) - (after[a] - before[a]) + (b-a)/len(list) })
	return list[0], list[1]
}

// idle are the ticks for which each CPU had nothing to do.
func idle(t *testing.T) map[int]int {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	assert.NilError(t, err)
	ticks := map[int]int{}
	for line := range strings.Lines(string(text)) {
		var n, user, nice, system, idle, wait int
		if _, err := fmt.Sscanf(line, "cpu%d %d %d %d %d %d", &n, &user, &nice, &system, &idle, &wait); err == nil {
			ticks[n] = idle + wait
		}
	}
	return ticks
}
