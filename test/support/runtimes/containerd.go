package runtimes

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"gotest.tools/v3/assert"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is what all containers are made of.
const Image = "tailcam.test/nap:1"

// Containerd is a containerd that serves Kubernetes' interface.
type Containerd struct {
	*place
	Socket string
	client cri.RuntimeServiceClient
}

// config has no network plugin, as pods use the machine's network, and copies layers, as
// not every kernel has overlayfs. disable_cgroup: resources need controllers that a machine
// with cgroup v1 does not have in v2; containers have a cgroup all the same.
const config = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "%[2]s"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%[3]s"
disable_cgroup = true
disable_apparmor = true
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "%[1]s/cni"
bin_dir = "%[1]s/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
`

// StartContainerd runs one until the end of the test.
func StartContainerd(t *testing.T) *Containerd {
	t.Helper()
	daemon, ctr := tool(t, "containerd", "containerd"), tool(t, "ctr", "containerd")
	tool(t, "runc", "runc")
	c := &Containerd{place: newPlace(t, "containerd")}
	c.Socket = filepath.Join(c.dir, "s")
	file := filepath.Join(c.dir, "config.toml")
	assert.NilError(t, os.WriteFile(file, fmt.Appendf(nil, config, c.dir, c.Socket, Image), 0o600))
	c.serve(c.Socket, daemon, "--config", file)
	archive := filepath.Join(c.dir, "image.tar")
	writeImage(t, archive, Nap(t, c.dir))
	c.run(ctr, "--address", c.Socket, "--namespace", "k8s.io", "images", "import", "--snapshotter", "native", archive)
	conn, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c.client = cri.NewRuntimeServiceClient(conn)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err = c.client.Version(t.Context(), &cri.VersionRequest{}); err == nil {
			return c
		}
		assert.Assert(t, time.Now().Before(end), "%v", err)
	}
}

// Pod is a pod with one container.
type Pod struct {
	c                *Containerd
	Sandbox, ID, UID string
	gone             bool
}

// Run starts a pod whose only container naps, as the kubelet does.
func (c *Containerd) Run(namespace, name, container, micros string, labels map[string]string) *Pod {
	t := c.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", os.Getpid(), len(name))
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: uid},
		Labels:   labels, LogDirectory: c.dir,
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}},
		},
	}
	s, err := c.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	assert.NilError(t, err)
	p := &Pod{c: c, Sandbox: s.PodSandboxId, UID: uid}
	t.Cleanup(func() { p.Remove() })
	made, err := c.client.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.Sandbox, SandboxConfig: sandbox,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: container}, Image: &cri.ImageSpec{Image: Image}, Args: []string{micros},
			Labels: map[string]string{
				"io.kubernetes.container.name": container, "io.kubernetes.pod.name": name,
				"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.uid": uid,
			},
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}},
			},
		},
	})
	assert.NilError(t, err)
	p.ID = made.ContainerId
	_, err = c.client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.ID})
	assert.NilError(t, err)
	return p
}

// Remove removes the pod, once.
func (p *Pod) Remove() {
	if p.gone {
		return
	}
	p.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := p.c.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Sandbox})
	assert.Check(p.c.t, err)
	_, err = p.c.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Sandbox})
	assert.Check(p.c.t, err)
}

// writeImage writes an image of one program, as docker save does.
func writeImage(t *testing.T, path, program string) {
	t.Helper()
	text, err := os.ReadFile(program)
	assert.NilError(t, err)
	layer := archive(t, file{"nap", text})
	settings, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/nap"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	assert.NilError(t, err)
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}}})
	assert.NilError(t, err)
	all := archive(t, file{"config.json", settings}, file{"layer.tar", layer}, file{"manifest.json", manifest})
	assert.NilError(t, os.WriteFile(path, all, 0o600))
}

type file struct {
	name string
	text []byte
}

func archive(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		assert.NilError(t, w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.text)), Typeflag: tar.TypeReg}))
		_, err := w.Write(f.text)
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}
