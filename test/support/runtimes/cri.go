package runtimes

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"gotest.tools/v3/assert"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI is a runtime that serves Kubernetes' interface.
type CRI struct {
	*place
	Name   string // of the runtime, as outliers have it
	Socket string
	client cri.RuntimeServiceClient
}

// connect waits until it answers.
func (c *CRI) connect() {
	c.t.Helper()
	conn, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	assert.NilError(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	c.client = cri.NewRuntimeServiceClient(conn)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err = c.client.Version(c.t.Context(), &cri.VersionRequest{}); err == nil {
			return
		}
		assert.Assert(c.t, time.Now().Before(end), "%v", err)
	}
}

// Pod is a pod with one container.
type Pod struct {
	c                *CRI
	Sandbox, ID, UID string
	gone             bool
}

// Run starts a pod whose only container naps, as the kubelet does.
func (c *CRI) Run(namespace, name, container, micros string, labels map[string]string) *Pod {
	t := c.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// A process namespace for each container, as the kubelet asks for; so CRI-O needs no process that
	// holds the pod's.
	namespaces := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
	uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", os.Getpid(), len(name))
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: uid},
		Labels:   labels, LogDirectory: c.dir,
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
	s, err := c.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	assert.NilError(t, err)
	p := &Pod{c: c, Sandbox: s.PodSandboxId, UID: uid}
	t.Cleanup(func() { p.Remove() })
	made, err := c.client.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.Sandbox, SandboxConfig: sandbox,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: container}, Image: &cri.ImageSpec{Image: Image, UserSpecifiedImage: Image}, Args: []string{micros},
			Labels: map[string]string{
				"io.kubernetes.container.name": container, "io.kubernetes.pod.name": name,
				"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.uid": uid,
			},
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces},
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
