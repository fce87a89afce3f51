package settings

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestKernel: what this kernel says is what procfs says; names of disks lead nowhere else.
func TestKernel(t *testing.T) {
	v := Kernel("/proc", "/sys", []string{"../kernel/mm", "..", "", "no such disk"}, []int{-1, 1 << 30})
	want, err := os.ReadFile("/proc/sys/vm/dirty_ratio")
	assert.NilError(t, err)
	assert.Check(t, v["vm.dirty_ratio"] == strings.TrimSpace(string(want)), "%v", v)
	for name := range v {
		assert.Check(t, !strings.Contains(name, ".."), "%s", name)
	}
}

// TestHostileFiles: only small, printable regular files are settings.
func TestHostileFiles(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "block", "vda", "queue")
	assert.NilError(t, os.MkdirAll(dir, 0o755))
	assert.NilError(t, unix.Mkfifo(filepath.Join(dir, "scheduler"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "nr_requests"), []byte("12\x1b[31m"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "wbt_lat_usec"), make([]byte, 1<<20), 0o600))
	v := Kernel(sys, sys, []string{"vda"}, nil)
	assert.Check(t, len(v) == 0, "%v", v)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "nr_requests"), []byte("256\n"), 0o600))
	assert.Check(t, Kernel(sys, sys, []string{"vda"}, nil)["vda/queue/nr_requests"] == "256")
}

// TestFrequencies: of the CPUs that are asked for, and of no others.
func TestFrequencies(t *testing.T) {
	sys := t.TempDir()
	for cpu, khz := range map[string]string{"cpu0": "3600000\n", "cpu1": "1800000\n", "cpu2": "fast\x00"} {
		write(t, filepath.Join(sys, "devices/system/cpu", cpu, "cpufreq/cpuinfo_max_freq"), khz)
	}
	v := Kernel(sys, sys, nil, []int{1, 2, 3})
	assert.DeepEqual(t, v, map[string]string{"cpu1/cpufreq/cpuinfo_max_freq": "1800000"})
}

// hierarchy is a directory that a mount table calls a cgroup v2.
func hierarchy(t *testing.T) (proc, root string) {
	proc, root = t.TempDir(), t.TempDir()
	assert.NilError(t, os.MkdirAll(filepath.Join(proc, "self"), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(proc, "self/mountinfo"),
		[]byte("30 20 0:26 / "+root+" rw - cgroup2 cgroup2 rw\n31 20 0:27 /part /nowhere rw - cgroup cgroup rw,cpu\nnonsense\n"), 0o600))
	return proc, root
}

func write(t *testing.T, file, value string) {
	assert.NilError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	assert.NilError(t, os.WriteFile(file, []byte(value), 0o600))
}

// TestCgroups: a task's cgroup and those above it, once each; nothing outside.
func TestCgroups(t *testing.T) {
	proc, root := hierarchy(t)
	write(t, filepath.Join(root, "a/cpu.max"), "50000 100000\n")
	write(t, filepath.Join(root, "a/b/cpu.max"), "max 100000\n")
	write(t, filepath.Join(root, "a/b/memory.max"), "max\n")
	write(t, filepath.Join(filepath.Dir(root), "cpu.max"), "1 1\n")
	defer os.Remove(filepath.Join(filepath.Dir(root), "cpu.max"))
	write(t, filepath.Join(root, "a/cpu.stat"), "nr_periods 7\nnr_throttled 5\nthrottled_usec 9\n")
	write(t, filepath.Join(root, "a/b/cpu.stat"), "nr_throttled 6\n")
	write(t, filepath.Join(root, "a/io.latency"), "7:0 target=5000\n")
	write(t, filepath.Join(root, "io.cost.qos"), "7:0 enable=1 ctrl=auto\n")
	got := Cgroups(proc, []Paths{{V2: "/a/b", CPU: "/x"}, {V2: "/a/b"}, {V2: "/../"}, {V2: "/../../etc"}, {V2: "a"}, {V2: "/" + strings.Repeat("x/", 4000)}}, time.Second)
	assert.DeepEqual(t, got, []Group{
		{"/", map[string]string{"io.cost.qos": "7:0 enable=1 ctrl=auto"}},
		{"/a/b", map[string]string{"cpu.max": "max 100000", "memory.max": "max"}}, // what it has no quota for is not counted
		{"/a", map[string]string{"cpu.max": "50000 100000", "nr_throttled": "5", "io.latency": "7:0 target=5000"}},
	})
}

// TestManyCgroups: no more than the limit are read, however many there are.
func TestManyCgroups(t *testing.T) {
	proc, root := hierarchy(t)
	var tasks []Paths
	for i := range 3 * maxCgroups {
		p := "/g" + strconv.Itoa(i)
		write(t, filepath.Join(root, p, "cpu.weight"), "100\n")
		tasks = append(tasks, Paths{V2: p})
	}
	assert.Check(t, len(Cgroups(proc, tasks, time.Minute)) == maxCgroups)
	assert.Check(t, len(Cgroups(proc, tasks, 0)) == 0)
}
