package process

import "strings"

// Prefixes of names that hold a container's id after the last dash, but belong
// to the process that watches the container.
var monitors = []string{"crio-conmon-", "libpod-conmon-", "lxc.monitor"}

// ContainerID finds the container that a cgroup path (of version 1 or 2)
// belongs to: the id of Docker, containerd, CRI-O, Podman and Kubernetes
// containers, the name of LXC and systemd-nspawn containers. Of containers
// within containers it returns the innermost. Empty: none.
func ContainerID(path string) string {
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		part := parts[i]
		if hasAnyPrefix(part, monitors) {
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

// hexID returns the id in a name such as ID, docker-ID.scope,
// cri-containerd-ID.scope or kubepods-….slice:cri-containerd:ID.
func hexID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	name = name[strings.LastIndexAny(name, "-:")+1:]
	if len(name) != 64 || strings.Trim(name, "0123456789abcdef") != "" {
		return ""
	}
	return name
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
