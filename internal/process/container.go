package process

import (
	"slices"
	"strings"
)

// Prefixes of scopes that contain a container's id but belong to its monitor.
var monitors = []string{"crio-conmon-", "libpod-conmon-", "lxc.monitor"}

// ContainerID extracts the container from a cgroup path (v1 or v2): the id for Docker,
// containerd, CRI-O, Podman and Kubernetes, the name for LXC and systemd-nspawn. For
// nested containers it returns the innermost one; "": none.
func ContainerID(path string) string {
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		part := parts[i]
		if slices.ContainsFunc(monitors, func(p string) bool { return strings.HasPrefix(part, p) }) {
			return ""
		}
		if id := hexID(part); id != "" {
			return id
		}
		if name, ok := strings.CutPrefix(part, "lxc.payload."); ok && name != "" {
			return name
		}
		if i > 0 && (parts[i-1] == "lxc" || parts[i-1] == "lxc.payload") && part != "" {
			return part
		}
		if name, ok := strings.CutPrefix(part, "systemd-nspawn@"); ok {
			return strings.TrimSuffix(name, ".service")
		}
	}
	return ""
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
