package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// whenKeys are all conditions, in the order in which errors list them.
var whenKeys = []string{
	"comm", "not_comm", "pid", "not_pid", "tid", "not_tid", "uid", "not_uid", "cgroup", "not_cgroup", "thread",
	"unit", "not_unit", "container", "not_container", "pod", "not_pod", "namespace", "not_namespace",
	"syscall", "not_syscall", "device", "not_device", "sector", "op", "state", "preempted",
	"irq", "not_irq", "name", "not_name", "vector", "not_vector", "phase", "cpu", "not_cpu", "key", "not_key",
	"queue", "not_queue", "function", "not_function",
}

// onlyFor lists the trackers of conditions that do not apply to all.
var onlyFor = map[string][]Track{
	"syscall":   {Syscall, OffCPU},
	"device":    {Block},
	"op":        {Block},
	"sector":    {Block},
	"state":     {OffCPU},
	"preempted": {Wakeup},
	"irq":       {IRQ, Chain},
	"name":      {IRQ, Activity},
	"vector":    {Softirq, Chain},
	"phase":     {Softirq, Workqueue},
	"key":       {Span},
	"queue":     {Workqueue},
	"function":  {Workqueue},

	"not_vector": {Softirq}, // a chain passes several

	// An activity is of a process, and may pass through its threads.
	"tid":    Tracks,
	"thread": Tracks,
	"cpu":    Tracks,
}

// Bounds set by the kernel side or the time to match.
const (
	maxCommLen   = 15  // TASK_COMM_LEN less its NUL
	maxDeviceLen = 31  // DISK_NAME_LEN less its NUL
	maxCgroupLen = 255 // bounds the time to match a path
	maxPlaceLen  = 253 // of a name in Kubernetes; of a unit in systemd: 255
	maxCallLen   = 64
	maxPID       = 1 << 22 // the kernel's own limit
)

// when reads the conditions of a rule or an override. If track is empty because it
// could not be read, combinations are not checked.
func (r *reader) when(n *yaml.Node, track Track) Match {
	var m Match
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 || isNull(n) {
		r.fail(n, "at least one condition, or no when", "when is empty")
		return m
	}
	keys := r.mapping(n, "when", whenKeys)
	for _, key := range whenKeys {
		e, ok := keys[key]
		if !ok {
			continue
		}
		if tracks := tracksOf(key); track != "" && tracks != nil && !slices.Contains(tracks, track) {
			r.fail(e.key, "track "+join(tracks), "%s does not apply to track %s", key, track)
			continue
		}
		r.condition(key, e.value, track, &m)
	}
	r.contradictions(keys, &m, track)
	r.interruptContradictions(keys, &m)
	return m
}

// tracksOf lists the trackers that a condition applies to; nil: all.
func tracksOf(key string) []Track {
	if tracks, ok := onlyFor[key]; ok {
		return tracks
	}
	return onlyFor[strings.TrimPrefix(key, "not_")]
}

func (r *reader) condition(key string, n *yaml.Node, track Track, m *Match) {
	if track == Activity && strings.HasSuffix(key, "name") {
		r.activityNames(key, n, m)
		return
	}
	switch key {
	case "comm":
		m.Comm = r.comms(n, key)
	case "not_comm":
		m.NotComm = r.comms(n, key)
	case "pid":
		m.PID = r.pids(n, key)
	case "not_pid":
		m.NotPID = r.pids(n, key)
	case "tid":
		m.TID = r.pids(n, key)
	case "not_tid":
		m.NotTID = r.pids(n, key)
	case "uid":
		m.UID = r.uids(n, key)
	case "not_uid":
		m.NotUID = r.uids(n, key)
	case "cgroup":
		m.Cgroup = r.cgroups(n, key)
	case "not_cgroup":
		m.NotCgroup = r.cgroups(n, key)
	case "syscall":
		m.Syscall = r.syscalls(n, key, track)
	case "not_syscall":
		m.NotSyscall = r.syscalls(n, key, track)
	case "device":
		m.Device = r.devices(n, key)
	case "not_device":
		m.NotDevice = r.devices(n, key)
	case "sector":
		m.Sector = r.sectors(n, key)
	case "op":
		m.Op = words(r, n, key, []Op{Read, Write, Flush, Discard, Other})
	case "state":
		m.State = words(r, n, key, []State{Interruptible, Uninterruptible, OtherState})
	case "thread":
		m.Thread = words(r, n, key, []Thread{UserThread, KernelThread})
	case "preempted":
		if v, ok := r.boolean(n, key); ok {
			m.Preempted = &v
		}
	case "key":
		m.Key = r.spanKeys(n, key)
	case "not_key":
		m.NotKey = r.spanKeys(n, key)
	case "phase":
		m.Phase = r.phase(n, track)
	case "queue":
		m.Queue = r.workNames(n, key)
	case "not_queue":
		m.NotQueue = r.workNames(n, key)
	case "function":
		m.Function = r.functions(n, key)
	case "not_function":
		m.NotFunction = r.functions(n, key)
	case "unit", "not_unit", "container", "not_container", "pod", "not_pod", "namespace", "not_namespace":
		r.placeCondition(key, n, m)
	default:
		r.interruptCondition(key, n, m)
	}
}

// contradictions finds conditions that can never hold together.
func (r *reader) contradictions(keys map[string]entry, m *Match, track Track) {
	for _, key := range []string{"comm", "pid", "tid", "uid", "cgroup", "unit", "container", "pod", "namespace", "device", "irq", "name", "cpu", "key", "queue", "function"} {
		not, ok := keys["not_"+key]
		if _, both := keys[key]; !ok || !both {
			continue
		}
		for _, v := range scalars(keys[key].value) {
			for _, w := range scalars(not.value) {
				if v.Value == w.Value {
					r.fail(w, "each value in one of them", "%s is in both %s and not_%s", cut(w.Value), key, key)
				}
			}
		}
	}
	if len(m.Syscall) > 0 && !slices.ContainsFunc(m.Syscall,
		func(nr int) bool { return !slices.Contains(m.NotSyscall, nr) }) {
		r.fail(keys["not_syscall"].key, "at least one remaining call", "not_syscall excludes every call of syscall")
	}
	if len(m.Thread) == 1 && m.Thread[0] == KernelThread {
		if e, ok := keys["syscall"]; ok {
			r.fail(e.key, "thread: user", "kernel threads make no system calls")
		} else if track == Syscall {
			r.fail(keys["thread"].value, "thread: user", "kernel threads make no system calls")
		}
	}
}

func scalars(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// globs reads a list of globs of at most most bytes. check, if not nil, reports
// whether a glob is valid, and records why not.
func (r *reader) globs(n *yaml.Node, what string, most int, tooLong string,
	check func(v *yaml.Node, glob string) bool) []string {
	var globs []string
	for _, v := range r.list(n, what) {
		s, ok := r.text(v, what)
		switch {
		case !ok:
		case strings.ContainsAny(s, "[]{}"):
			r.fail(v, "the wildcards * and ?; ? also matches a bracket", "%s %q contains a bracket", what, cut(s))
		case len(s) > most:
			r.fail(v, fmt.Sprintf("at most %d bytes%s", most, tooLong), "%s %q is too long", what, cut(s))
		case strings.ContainsRune(s, 0):
			r.fail(v, "a string without a NUL", "%s %q contains a NUL", what, cut(s))
		case slices.Contains(globs, s):
			r.fail(v, "each value once", "duplicate value %s", cut(s))
		case check == nil || check(v, s):
			globs = append(globs, s)
		}
	}
	return globs
}

func (r *reader) comms(n *yaml.Node, what string) []string {
	return r.globs(n, what, maxCommLen, " (the kernel truncates task names); use * for a prefix",
		func(v *yaml.Node, _ string) bool {
			r.commGlobs++
			if r.commGlobs == MaxCommGlobs+1 {
				r.fail(v, fmt.Sprintf("at most %d in all rules", MaxCommGlobs), "too many comm globs")
			}
			return true
		})
}

func (r *reader) cgroups(n *yaml.Node, what string) []string {
	r.verdictList(n, "cgroup")
	return r.globs(n, what, maxCgroupLen, "", func(v *yaml.Node, glob string) bool {
		if !strings.HasPrefix(glob, "/") {
			r.fail(v, "a cgroup v2 path from its root, such as /system.slice/**", "%s %q does not begin with /", what,
				cut(glob))
			return false
		}
		return r.verdict(v, "cgroup", glob)
	})
}

func (r *reader) placeCondition(key string, n *yaml.Node, m *Match) {
	globs := r.places(n, key)
	switch key {
	case "unit":
		m.Unit = globs
	case "not_unit":
		m.NotUnit = globs
	case "container":
		m.Container = globs
	case "not_container":
		m.NotContainer = globs
	case "pod":
		m.Pod = globs
	case "not_pod":
		m.NotPod = globs
	case "namespace":
		m.Namespace = globs
	case "not_namespace":
		m.NotNamespace = globs
	}
}

// places reads globs on what a cgroup belongs to. They share their limits with those on
// its path: the daemon decides all of them by cgroup.
func (r *reader) places(n *yaml.Node, what string) []string {
	r.verdictList(n, "cgroup")
	return r.globs(n, what, maxPlaceLen, "", func(v *yaml.Node, glob string) bool {
		kind := strings.TrimPrefix(what, "not_")
		switch {
		case kind != "unit" && strings.Contains(glob, "/"):
			r.fail(v, "a name without slashes", "%s %q contains a slash", what, cut(glob))
			return false
		case kind == "unit" && !unitGlob(glob):
			r.fail(v, "a unit with its type, such as "+glob+".service, or a glob such as "+glob+".*", "%s %q has no type", what, cut(glob))
			return false
		}
		return r.verdict(v, "cgroup", kind+":"+glob)
	})
}

// unitGlob reports whether a unit may match: the name of each has the type at its end.
func unitGlob(glob string) bool {
	return strings.HasSuffix(glob, "*") || slices.ContainsFunc([]string{".service", ".scope", ".socket", ".mount", ".swap"},
		func(t string) bool { return GlobMatch(glob[max(0, len(glob)-len(t)):], t) })
}

func (r *reader) devices(n *yaml.Node, what string) []string {
	r.verdictList(n, "device")
	return r.globs(n, what, maxDeviceLen, "", func(v *yaml.Node, glob string) bool {
		here := r.machine.Devices()
		switch {
		case strings.HasPrefix(glob, "/dev/"):
			r.fail(v, strings.TrimPrefix(glob, "/dev/")+", the name without /dev/", "%s %q is a path", what, cut(glob))
			return false
		case !strings.ContainsAny(glob, "*?") && !slices.Contains(here, glob):
			names := slices.Sorted(slices.Values(here))
			r.fail(v, strings.Join(names, ", ")+", or a glob", "%s", r.unknown("device", glob, names))
			return false
		}
		return r.verdict(v, "device", glob)
	})
}

// verdictList counts the conditions that the daemon evaluates, and verdict the
// different globs in them: each has a bit in the kernel side's tables.
func (r *reader) verdictList(n *yaml.Node, kind string) {
	r.lists[kind]++
	if r.lists[kind] == MaxVerdicts+1 {
		r.fail(n, fmt.Sprintf("at most %d in all rules", MaxVerdicts), "too many %s conditions", kind)
	}
}

func (r *reader) verdict(v *yaml.Node, kind, glob string) bool {
	seen := r.verdicts[kind]
	if seen == nil {
		seen = make(map[string]bool)
		r.verdicts[kind] = seen
	}
	if !seen[glob] && len(seen) == MaxVerdicts {
		r.fail(v, fmt.Sprintf("at most %d different ones in all rules", MaxVerdicts), "too many %s globs", kind)
	}
	seen[glob] = true
	return true
}

func (r *reader) pids(n *yaml.Node, what string) []uint32 {
	return r.ids(n, what, func(v *yaml.Node) (uint64, bool) { return r.number(v, what, 1, maxPID) })
}

// uids reads user ids and names of users.
func (r *reader) uids(n *yaml.Node, what string) []uint32 {
	return r.ids(n, what, func(v *yaml.Node) (uint64, bool) {
		if v.Kind != yaml.ScalarNode || v.Tag != "!!str" || v.Value == "" {
			return r.number(v, what, 0, maxUID)
		}
		uid, err := r.machine.LookupUser(v.Value)
		if err != nil {
			r.fail(v, "an existing user, or a user id", "unknown user %q", cut(v.Value))
			return 0, false
		}
		return uint64(uid), true
	})
}

func (r *reader) ids(n *yaml.Node, what string, read func(*yaml.Node) (uint64, bool)) []uint32 {
	var ids []uint32
	for _, v := range r.list(n, what) {
		id, ok := read(v)
		switch {
		case !ok || id > math.MaxUint32:
		case slices.Contains(ids, uint32(id)):
			r.fail(v, "each value once", "duplicate value %s", cut(v.Value))
		default:
			ids = append(ids, uint32(id))
		}
	}
	r.addMembers(n, what, len(ids))
	return ids
}

// addMembers counts the pids, uids, system calls, irqs and CPUs of all conditions.
func (r *reader) addMembers(n *yaml.Node, what string, count int) {
	if r.members <= MaxMembers && r.members+count > MaxMembers {
		r.fail(n, fmt.Sprintf("at most %d pids, uids, system calls, irqs and CPUs in all rules", MaxMembers),
			"too many values in %s", what)
	}
	r.members += count
}

// syscalls reads names of system calls, and globs.
func (r *reader) syscalls(n *yaml.Node, what string, track Track) []int {
	var nrs []int
	elsewhere := false
	names := r.globs(n, what, maxCallLen, "", nil)
	values := scalars(n)
	if len(names) < len(values) {
		return nil // already reported
	}
	before := len(r.errs)
	for i, v := range values {
		got, known := syscallMatches(names[i])
		if !known {
			r.fail(v, "system calls as in syscalls(2), or globs", "%s", r.unknown("system call", names[i], knownCalls()))
			continue
		}
		elsewhere = elsewhere || len(got) == 0
		if track == Syscall && what == "syscall" {
			exits := slices.ContainsFunc(got, neverReturns)
			got = slices.DeleteFunc(got, neverReturns)
			if exits && len(got) == 0 {
				r.fail(v, "calls that return", "%s never returns", names[i])
			}
		}
		nrs = append(nrs, got...)
	}
	slices.Sort(nrs)
	nrs = slices.Compact(nrs)
	if len(nrs) == 0 && len(r.errs) == before && elsewhere && what == "syscall" {
		r.fail(n, "at least one call that this machine has", "no call of %s exists on this architecture", what)
	}
	r.addMembers(n, what, len(nrs))
	return nrs
}

func join[T ~string](tracks []T) string {
	var s []string
	for _, t := range tracks {
		s = append(s, string(t))
	}
	return strings.Join(s, ", ")
}
