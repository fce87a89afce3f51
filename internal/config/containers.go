package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/containers"
)

// Limits of lists of containers.
const (
	maxSockets  = 16
	maxLabels   = 32
	maxLabelKey = 317 // of Kubernetes: a prefix of 253, a slash, and 63
)

// containerKeys are the keys of containers.
func containerKeys() []key {
	return []key{
		unset(texts("containers.sockets", strings.Join([]string{
			"cri:/run/containerd/containerd.sock", "cri:/run/k3s/containerd/containerd.sock", "cri:/run/crio/crio.sock",
			"docker:/run/docker.sock", "docker:/run/podman/podman.sock",
		}, ","), "`sockets` of container runtimes; empty: none is asked", "cri: or docker:, and a path", setContainerSockets)),
		unset(texts("containers.labels", strings.Join([]string{
			"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component", "app.kubernetes.io/part-of",
			"app.kubernetes.io/version", "app", "k8s-app", "com.docker.compose.project", "com.docker.compose.service",
		}, ","), "`labels` of pods and containers that outliers carry; empty: none", "keys of labels", setContainerLabels)),
	}
}

func setContainerSockets(c *Config, v []string) string {
	if len(v) > maxSockets {
		return fmt.Sprintf("has more than %d sockets", maxSockets)
	}
	c.Containers.Sockets = nil
	for _, s := range v {
		socket, err := containers.ParseSocket(s)
		if err != nil {
			return err.Error()
		}
		s = socket.Protocol + ":" + socket.Path
		if slices.Contains(c.Containers.Sockets, s) {
			return fmt.Sprintf("lists %s twice", s)
		}
		c.Containers.Sockets = append(c.Containers.Sockets, s)
	}
	return ""
}

func setContainerLabels(c *Config, v []string) string {
	if len(v) > maxLabels {
		return fmt.Sprintf("has more than %d labels", maxLabels)
	}
	c.Containers.Labels = nil
	for _, key := range v {
		switch {
		case key == "" || len(key) > maxLabelKey:
			return fmt.Sprintf("has a key that is empty, or longer than %d bytes", maxLabelKey)
		case slices.Contains(c.Containers.Labels, key):
			return fmt.Sprintf("lists %s twice", key)
		}
		c.Containers.Labels = append(c.Containers.Labels, key)
	}
	return ""
}
