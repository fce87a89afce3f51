package explain

import (
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

// lowest returns the first of these files that limits a cgroup, or the nearest one above it;
// limited is false if none is known to.
func (m *model) lowest(cgroup string, names ...string) (k knob, limited bool) {
	if !path.IsAbs(cgroup) {
		return knob{}, false
	}
	at := path.Clean(cgroup)
	for range maxCgroupDepth {
		if at == "/" {
			break
		}
		for _, name := range names {
			if v := m.limit(at, name); isLimit(v) {
				return knob{at, name, v}, true
			}
		}
		at = path.Dir(at)
	}
	return knob{}, false
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

// cpuQuota returns the quota that throttles a cgroup: its own, or that of one above it.
func (m *model) cpuQuota(cgroup string) (knob, bool) {
	return m.lowest(cgroup, "cpu.max", "cpu.cfs_quota_us")
}
