package accuracy

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/test/support/provoke"
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

// diskServer is what is advised where the slow disk is in the way: the process that its file is of.
const diskServer = "as its worker waited for exe"

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

func withQuota(t *testing.T, r *round) {
	g := provoke.NewCgroup(t, "cpu")
	provoke.Quota(t, g, 100*time.Millisecond)
	r.argument = g.Dir
}

// withQuotaAbove has it in a cgroup whose quota is not used up, below one whose quota others of
// it use up as well.
func withQuotaAbove(t *testing.T, r *round) {
	outer := provoke.NewNamedCgroup(t, "cpu", provoke.CgroupName("outer"))
	provoke.Quota(t, outer, 100*time.Millisecond)
	below := func(name string) *provoke.Cgroup {
		if outer.V2 {
			outer.Set(t, "", "cgroup.subtree_control", "+cpu")
		}
		return provoke.NewNamedCgroup(t, "cpu", provoke.CgroupName("outer")+"/"+name)
	}
	inner := below("inner")
	provoke.Quota(t, inner, time.Second) // the same share, but more than the program takes in its time
	r.argument = inner.Dir
	r.env = []string{"SCENARIO_QUOTA=" + outer.Dir, "SCENARIO_SIBLING=" + below("sibling").Dir}
}

// withWeight lets the program's ordinary tasks go before nearly all that others
// do on the machine meanwhile.
func withWeight(t *testing.T, r *round) {
	g := provoke.NewCgroup(t, "cpu")
	g.Set(t, "cpu.shares", "cpu.weight", map[bool]string{false: "262144", true: "10000"}[g.V2])
	r.env = []string{"SCENARIO_GROUP=" + g.Dir}
}

func withFreezer(t *testing.T, r *round) { r.argument = provoke.NewCgroup(t, "freezer").Dir }

// withLittleMemory gives the program less memory than it writes to a slow disk.
func (s *resources) withLittleMemory(t *testing.T, r *round) {
	g := provoke.NewCgroup(t, "memory")
	g.Set(t, "memory.limit_in_bytes", "memory.max", strconv.Itoa(32<<20))
	s.withFiles(0, 10*time.Millisecond, 0)(t, r)
	r.env = []string{"SCENARIO_CGROUP=" + g.Dir}
}

// ---------------------------------------------------------------------- CPUs

// quietCPUs are the two that had least to do just now, but never the first one
// of the machine if that can be: it serves most interrupts.
func quietCPUs(t *testing.T) (cpu, other int) {
	t.Helper()
	before := idle(t)
	time.Sleep(50 * time.Millisecond)
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
