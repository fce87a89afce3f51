// Package settings reads the settings of the kernel, of disks and of cgroups that advice may
// name, as they are now. It reads a fixed list of files, each in one piece of limited size,
// and takes names and paths of others for hostile.
package settings

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// Limits of one reading.
const (
	maxValue   = 256 // bytes of a value
	maxStat    = 4096
	maxNumber  = 21
	maxDisks   = 32
	maxCPUs    = 256
	maxCgroups = 128 // with those above them
)

// Group is what the cgroup at a path limits: the names of its files, and what they say. A
// path of cgroup v1 is that of the controller that has the file.
type Group struct {
	Cgroup string
	Limits map[string]string
}

// sysctls are read below /proc/sys; their names have dots instead of slashes.
var sysctls = []string{
	"vm/dirty_bytes", "vm/dirty_ratio", "vm/dirty_background_bytes", "vm/dirty_background_ratio",
	"vm/min_free_kbytes", "vm/watermark_scale_factor", "vm/swappiness", "vm/compaction_proactiveness",
	"net/core/somaxconn", "net/core/netdev_budget_usecs", "net/ipv4/tcp_max_syn_backlog",
	"kernel/sched_rt_runtime_us", "kernel/sched_rt_period_us", "kernel/sched_autogroup_enabled",
}

// files are read below /sys, and called as the knob is called by people.
var files = map[string]string{
	"transparent_hugepage/enabled": "kernel/mm/transparent_hugepage/enabled",
	"transparent_hugepage/defrag":  "kernel/mm/transparent_hugepage/defrag",
	"cpuidle/current_driver":       "devices/system/cpu/cpuidle/current_driver",
	"cpufreq/scaling_governor":     "devices/system/cpu/cpu0/cpufreq/scaling_governor",
	"cpufreq/scaling_min_freq":     "devices/system/cpu/cpu0/cpufreq/scaling_min_freq",
	"cpu/online":                   "devices/system/cpu/online",
}

// queue are read for each disk, below /sys/block/DISK/queue.
var queue = []string{"scheduler", "nr_requests", "wbt_lat_usec"}

// Kernel reads the settings of the kernel and of these disks, by name: vm.dirty_bytes,
// vda/queue/scheduler, and the highest frequencies of CPUs: cpu3/cpufreq/cpuinfo_max_freq. What is not there is left out. proc and sys are where procfs and sysfs
// are mounted. It may block as long as a disk's driver does.
func Kernel(proc, sys string, disks []string, cpus []int) map[string]string {
	out := map[string]string{}
	add := func(name, file string) {
		if v, ok := read(file); ok {
			out[name] = v
		}
	}
	for _, s := range sysctls {
		add(strings.ReplaceAll(s, "/", "."), filepath.Join(proc, "sys", s))
	}
	for name, file := range files {
		add(name, filepath.Join(sys, file))
	}
	for _, d := range disks[:min(len(disks), maxDisks)] {
		if d == "" || d == "." || d == ".." || strings.ContainsRune(d, '/') {
			continue // a driver chose it
		}
		for _, q := range queue {
			add(d+"/queue/"+q, filepath.Join(sys, "block", d, "queue", q))
		}
	}
	for _, n := range cpus[:min(len(cpus), maxCPUs)] {
		name := fmt.Sprintf("cpu%d/cpufreq/cpuinfo_max_freq", n)
		add(name, filepath.Join(sys, "devices/system/cpu", name))
	}
	return out
}

// Paths are the cgroups of one task: that of v2, and where controllers are those of v1, theirs.
type Paths struct{ V2, CPU, Memory, IO string }

// groupFiles are read for each cgroup, and those above it, by controller: "" is v2.
var groupFiles = map[string][]string{
	"": {
		"cpu.max", "cpu.weight", "memory.current", "memory.high", "memory.max", "memory.min", "memory.low",
		"io.max", "io.weight", "io.latency", "pids.max",
	},
	"cpu":    {"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"},
	"memory": {"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.soft_limit_in_bytes"},
	"blkio": {
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	},
}

// rootFiles are read once, in the root of cgroup v2: they are of disks.
var rootFiles = []string{"io.cost.qos"}

// throttled is what is read from cpu.stat of each cgroup that has a quota of CPU time.
const throttled = "nr_throttled"

// Cgroups reads what limits tasks: of their cgroups, in order, and of those above them, as far
// as 128 cgroups and the time permit.
func Cgroups(proc string, tasks []Paths, limit time.Duration) []Group {
	mounts := cgroupMounts(proc)
	r := groupReader{until: time.Now().Add(limit), known: map[string]map[string]string{}, done: map[[2]string]bool{}}
	if root := mounts[""]; root != "" && len(tasks) > 0 {
		r.readRoot(root)
	}
	for i := range tasks {
		t := &tasks[i]
		for _, c := range []struct{ controller, path string }{{"", t.V2}, {"cpu", t.CPU}, {"memory", t.Memory}, {"blkio", t.IO}} {
			if root := mounts[c.controller]; root != "" && c.path != "" {
				r.read(root, c.controller, c.path)
			}
		}
	}
	out := make([]Group, 0, len(r.order))
	for _, p := range r.order {
		out = append(out, Group{Cgroup: p, Limits: r.known[p]})
	}
	return out
}

type groupReader struct {
	until time.Time
	known map[string]map[string]string
	done  map[[2]string]bool
	order []string
}

// read reads a cgroup and those above it. The root of a hierarchy has no limits.
func (r *groupReader) read(root, controller, at string) {
	at = path.Clean(at)
	if !path.IsAbs(at) || len(at) > unix.PathMax || at == "/" || r.done[[2]string{controller, at}] {
		return
	}
	dir, err := os.OpenRoot(root) // a path of another namespace begins with /..
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	for ; at != "/" && len(r.done) < maxCgroups && time.Now().Before(r.until); at = path.Dir(at) {
		if r.done[[2]string{controller, at}] {
			return
		}
		r.done[[2]string{controller, at}] = true
		in := func(name string) string { return strings.TrimPrefix(at, "/") + "/" + name }
		for _, name := range groupFiles[controller] {
			r.add(dir, at, name, in(name))
		}
		if limited(r.known[at]) {
			r.addCount(dir, at, in("cpu.stat"))
		}
	}
}

// readRoot reads what is set for disks in the root of a hierarchy of v2.
func (r *groupReader) readRoot(root string) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	for _, name := range rootFiles {
		r.add(dir, "/", name, name)
	}
}

// add adds what a file says, if it is there.
func (r *groupReader) add(dir *os.Root, at, name, file string) {
	f, err := dir.Open(file)
	if err != nil {
		return
	}
	if v, ok := readOpen(f); ok {
		r.note(at, name, v)
	}
}

func (r *groupReader) note(at, name, value string) {
	if r.known[at] == nil {
		r.known[at] = map[string]string{}
		r.order = append(r.order, at)
	}
	r.known[at][name] = value
}

// limited reports whether a cgroup has a quota of CPU time.
func limited(files map[string]string) bool {
	v2, v1 := files["cpu.max"], files["cpu.cfs_quota_us"]
	return v2 != "" && !strings.HasPrefix(v2, "max") || v1 != "" && !strings.HasPrefix(v1, "-")
}

// addCount adds how often a cgroup has used up its quota, from its cpu.stat.
func (r *groupReader) addCount(dir *os.Root, at, file string) {
	f, err := dir.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxStat))
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), throttled+" "); ok && len(n) < maxNumber {
			r.note(at, throttled, n)
		}
	}
}

// cgroupMounts returns where the whole hierarchies of v2 (""), and of controllers of v1, are
// mounted.
func cgroupMounts(proc string) map[string]string {
	out := map[string]string{}
	err := linux.MountsOf(filepath.Join(proc, "self/mountinfo"), func(m *linux.Mount) {
		switch {
		case m.Root != "/" || strings.ContainsAny(m.Point, "\\ \t\n#"): // advice would have to quote it
		case m.Type == "cgroup2":
			out[""] = m.Point
		case m.Type == "cgroup":
			for c := range groupFiles {
				if c != "" && slices.Contains(strings.Split(m.Options, ","), c) {
					out[c] = m.Point
				}
			}
		}
	})
	if err != nil {
		return map[string]string{}
	}
	return out
}

// read reads a small file. A file that blocks its reader, such as a pipe, is not opened.
func read(name string) (string, bool) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", false
	}
	return readOpen(f)
}

// readOpen reads and closes a file. Its value is printable, on one line.
func readOpen(f *os.File) (string, bool) {
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", false
	}
	buf := make([]byte, maxValue)
	n, err := io.ReadFull(f, buf)
	if n == 0 || err == nil { // more than a value
		return "", false
	}
	v := strings.Join(strings.Fields(string(buf[:n])), " ")
	for _, r := range v {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return "", false
		}
	}
	return v, v != ""
}
