package explain

import (
	"math"
	"path"
	"strconv"
	"strings"
)

// now tells what a setting was when the snapshot was taken: " (now 20)"; "" if not known.
func (m *model) now(name string) string {
	if v := m.setting(name); v != "" {
		return " (now " + v + ")"
	}
	return ""
}

func (m *model) setting(name string) string {
	if m.names.Setting == nil {
		return ""
	}
	return m.names.Setting(name)
}

func (m *model) limit(cgroup, name string) string {
	if m.names.Limit == nil || cgroup == "" {
		return ""
	}
	return m.names.Limit(cgroup, name)
}

// knob is a file of a cgroup and what it said; "": not known.
type knob struct{ cgroup, name, value string }

// now is the value as advice has it.
func (k knob) now() string {
	if k.value == "" {
		return ""
	}
	if !isLimit(k.value) {
		return " (now no limit)"
	}
	return " (now " + k.value + ")"
}

// isLimit reports whether a value limits anything: cgroup v1 has a number for none.
func isLimit(value string) bool {
	first, _, _ := strings.Cut(value, " ")
	n, err := strconv.ParseInt(first, 10, 64)
	return value != "" && first != "max" && (err != nil || n >= 0 && n < 1<<62)
}

const maxCgroupDepth = 64

// own returns the first of these files that a cgroup has itself, or the first name of all.
func (m *model) own(cgroup string, names ...string) knob {
	for _, name := range names {
		if v := m.limit(cgroup, name); v != "" {
			return knob{cgroup, name, v}
		}
	}
	return knob{cgroup, names[0], ""}
}

// path lists a cgroup and those above it but the root.
func (m *model) path(cgroup string) (list []string) {
	if !path.IsAbs(cgroup) {
		return nil
	}
	for at := path.Clean(cgroup); at != "/" && len(list) < maxCgroupDepth; at = path.Dir(at) {
		list = append(list, at)
	}
	return list
}

// cpuQuota returns the quota that throttles a cgroup: its own, or that of one above it. Of
// several, one that has been used up before, and leaves the smallest share of the time.
func (m *model) cpuQuota(cgroup string) (found knob, ok bool) {
	var least float64
	used := false
	for _, at := range m.path(cgroup) {
		k := m.own(at, "cpu.max", "cpu.cfs_quota_us")
		if !isLimit(k.value) {
			continue
		}
		if k.name == "cpu.cfs_quota_us" {
			if period := m.limit(at, "cpu.cfs_period_us"); period != "" {
				k.value += " of cpu.cfs_period_us " + period
			}
		}
		share, count := shareOf(k.value), m.limit(at, "nr_throttled")
		was := count != "" && count != "0"
		if !ok || was && !used || was == used && share < least {
			found, ok, least, used = k, true, share, was
		}
	}
	return found, ok
}

// shareOf is how many CPUs a quota amounts to: "50000 100000", or "50000 of … 100000".
func shareOf(quota string) float64 {
	f := strings.Fields(quota)
	of, err := strconv.ParseFloat(f[0], 64)
	period, also := strconv.ParseFloat(f[len(f)-1], 64)
	if err != nil || also != nil || period <= 0 || len(f) < 2 {
		return math.Inf(1)
	}
	return of / period
}

// memoryLimit returns the first of these limits of a cgroup, or of the nearest one above it,
// that its memory is near to, or the nearest one if no usage is.
func (m *model) memoryLimit(cgroup string, names ...string) (found knob, ok bool) {
	for _, at := range m.path(cgroup) {
		used, err := strconv.ParseUint(m.own(at, "memory.current", "memory.usage_in_bytes").value, 10, 64)
		for _, name := range names {
			v := m.limit(at, name)
			if !isLimit(v) {
				continue
			}
			if n, bad := strconv.ParseUint(v, 10, 64); err == nil && bad == nil && used >= n-n/8 {
				return knob{at, name, v}, true
			}
			if !ok {
				found, ok = knob{at, name, v}, true
			}
		}
	}
	return found, ok
}

// ioLimits are the files that limit block I/O. Those of version 1 have a number for each disk.
var ioLimits = map[bool][]string{
	false: {"blkio.throttle.read_iops_device", "blkio.throttle.read_bps_device"},
	true:  {"blkio.throttle.write_iops_device", "blkio.throttle.write_bps_device"},
}

// ioLimit returns what limits reads or writes of a disk, such as 8:0, by a cgroup, or by the
// nearest one above it that does.
func (m *model) ioLimit(cgroup, disk string, write bool) (knob, bool) {
	prefix := "r"
	if write {
		prefix = "w"
	}
	for _, at := range m.path(cgroup) {
		var of []string
		for _, f := range valuesOf(m.limit(at, "io.max"), disk) {
			if strings.HasPrefix(f, prefix) && !strings.HasSuffix(f, "=max") {
				of = append(of, f)
			}
		}
		if len(of) > 0 {
			return knob{at, "io.max", disk + " " + strings.Join(of, " ")}, true
		}
		for _, name := range ioLimits[write] {
			if of := valuesOf(m.limit(at, name), disk); len(of) > 0 {
				return knob{at, name, disk + " " + of[0]}, true
			}
		}
	}
	return knob{}, false
}

// valuesOf is what a value says of a disk: "8:0 rbps=max 8:16 rbps=1".
func valuesOf(value, disk string) (list []string) {
	mine := false
	for _, f := range strings.Fields(value) {
		if strings.Contains(f, ":") && !strings.Contains(f, "=") {
			mine = f == disk
		} else if mine {
			list = append(list, f)
		}
	}
	return list
}
