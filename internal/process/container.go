package process

import (
	"regexp"
	"slices"
	"strings"
)

// Container runtimes, as OpenTelemetry names them.
const (
	Docker     = "docker"
	Containerd = "containerd"
	CRIO       = "cri-o"
	Podman     = "podman"
	LXC        = "lxc"
	Nspawn     = "systemd-nspawn"
)

// Place is what the path of a cgroup says. Fields are empty if it does not say it.
type Place struct {
	Unit      string // systemd unit; in the manager of a user, that user's unit
	Container string // id; LXC, systemd-nspawn: name
	Runtime   string
	PodUID    string // of Kubernetes
}

// Prefixes of scopes that contain a container's id but belong to its monitor.
var monitors = []string{"crio-conmon-", "libpod-conmon-", "lxc.monitor"}

// ContainerID extracts the container from a cgroup path (v1 or v2): the id for Docker,
// containerd, CRI-O, Podman and Kubernetes, the name for LXC and systemd-nspawn. For
// nested containers it returns the innermost one; "": none.
func ContainerID(path string) string {
	id, _ := containerOf(strings.Split(path, "/"))
	return id
}

// PlaceOf reads the path of a cgroup (v1 or v2). Whoever may create cgroups chooses it.
func PlaceOf(path string) Place {
	if path == "" || path == "/" {
		return Place{}
	}
	parts := strings.Split(path, "/")
	p := Place{Unit: unitOf(parts), PodUID: podOf(parts)}
	p.Container, p.Runtime = containerOf(parts)
	return p
}

func containerOf(parts []string) (id, runtime string) {
	for i := len(parts) - 1; i >= 0; i-- {
		part, parent := parts[i], ""
		if i > 0 {
			parent = parts[i-1]
		}
		if slices.ContainsFunc(monitors, func(p string) bool { return strings.HasPrefix(part, p) }) {
			return "", ""
		}
		if id := hexID(part); id != "" {
			return id, runtimeOf(part, parent)
		}
		if name, ok := strings.CutPrefix(part, "lxc.payload."); ok && name != "" {
			return name, LXC
		}
		if (parent == "lxc" || parent == "lxc.payload") && part != "" {
			return part, LXC
		}
		if name, ok := strings.CutPrefix(part, "systemd-nspawn@"); ok {
			return unescapeUnit(strings.TrimSuffix(name, ".service")), Nspawn
		}
		// systemd-nspawn without its service; virtual machines have such a scope, too,
		// but no payload.
		if name, ok := strings.CutPrefix(parent, "machine-"); ok && part == "payload" {
			return unescapeUnit(strings.TrimSuffix(name, ".scope")), Nspawn
		}
	}
	return "", ""
}

// hexID extracts the id from names such as ID, docker-ID.scope, cri-containerd-ID.scope
// or kubepods-….slice:cri-containerd:ID.
func hexID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	name = name[strings.LastIndexAny(name, "-:")+1:]
	if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		return ""
	}
	return name
}

// runtimeOf is the runtime of a cgroup with an id in its name: systemd's driver puts it
// before the id, and the cgroupfs driver of some has a parent of that name.
func runtimeOf(name, parent string) string {
	for _, known := range []struct{ name, parent, runtime string }{
		{"cri-containerd", "", Containerd}, {"nerdctl-", "", Containerd}, {"crio-", "", CRIO}, {"docker-", "docker", Docker},
		{"libpod-", "libpod_parent", Podman},
	} {
		if strings.HasPrefix(name, known.name) || strings.Contains(name, ":"+strings.TrimSuffix(known.name, "-")+":") ||
			known.parent != "" && parent == known.parent {
			return known.runtime
		}
	}
	return ""
}

// podUID is pod and a UUID, or the hash that static pods have; systemd's driver has
// underscores in it.
var podUID = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice|$)`)

// podOf finds the pod among the parents of a container: kubepods/burstable/podUID, or
// kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice.
func podOf(parts []string) string {
	for i := len(parts) - 1; i >= 0; i-- {
		name, _, _ := strings.Cut(parts[i], ":") // containerd's parent:cri-containerd:ID
		if m := podUID.FindStringSubmatch(name); m != nil {
			return strings.ReplaceAll(m[1], "_", "-")
		}
	}
	return ""
}

// unitOf is the outermost unit that is no slice, as systemd finds it (cg_path_get_unit). Of
// the manager of a user it is the unit within, if there is one.
func unitOf(parts []string) string {
	unit := ""
	for _, part := range parts {
		switch {
		case part == "" || strings.HasSuffix(part, ".slice"):
			continue
		case isUnit(part):
			part = strings.TrimPrefix(part, "_") // cg_escape
			if strings.HasPrefix(unit, "user@") && part != "init.scope" || unit == "" {
				unit = part
			}
		}
		if !strings.HasPrefix(unit, "user@") {
			return unit
		}
	}
	return unit
}

var unitTypes = []string{".service", ".scope", ".socket", ".mount", ".swap"}

func isUnit(name string) bool {
	return slices.ContainsFunc(unitTypes, func(t string) bool { return len(name) > len(t) && strings.HasSuffix(name, t) })
}

// unescapeUnit undoes what systemd-escape does to the names of machines.
func unescapeUnit(s string) string {
	return strings.ReplaceAll(s, `\x2d`, "-")
}
