package containers

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cri is a runtime with Kubernetes' Container Runtime Interface: containerd and CRI-O. Of
// containerd it knows the containers of Kubernetes, and not those of ctr or nerdctl.
type cri struct {
	conn    *grpc.ClientConn
	runtime runtime.RuntimeServiceClient
	name    string // of the runtime; "": not asked yet
}

func newCRI(path string) (*cri, error) {
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a file's permissions protect it
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &cri{conn: conn, runtime: runtime.NewRuntimeServiceClient(conn)}, nil
}

func (c *cri) close() { _ = c.conn.Close() }

// Labels that the kubelet gives to each container (pkg/kubelet/types/labels.go).
const (
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

func (c *cri) container(ctx context.Context, id string) (*Container, error) {
	if c.name == "" {
		v, err := c.runtime.Version(ctx, &runtime.VersionRequest{})
		if err != nil {
			return nil, failure("ask for its version", err)
		}
		c.name = v.GetRuntimeName()
	}
	r, err := c.runtime.ListContainers(ctx, &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{Id: id}})
	if err != nil {
		return nil, failure("list containers", err)
	}
	got := &Container{Runtime: c.name, Labels: map[string]string{}}
	sandbox := id // the container that holds a pod's namespaces is none of its list
	for _, found := range r.GetContainers() {
		if found.GetId() != id {
			continue
		}
		got.Name, sandbox = found.GetMetadata().GetName(), found.GetPodSandboxId()
		got.fromLabels(found.GetLabels())
		got.Image = c.image(ctx, id, found.GetImage())
	}
	return c.pod(ctx, got, sandbox, sandbox == id)
}

// image is what the container was made of, by name. The kubelet asks for images by their
// ids: it may tell the name, too, since 1.29; else the status of the container has it.
func (c *cri) image(ctx context.Context, id string, spec *runtime.ImageSpec) string {
	if name := cmp.Or(spec.GetUserSpecifiedImage(), spec.GetImage()); name != "" && !isImageID(name) {
		return name
	}
	r, err := c.runtime.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return "" // all the rest is known
	}
	return r.GetStatus().GetImage().GetImage()
}

// isImageID tells ids, as containerd and CRI-O have them, from names.
func isImageID(s string) bool {
	s = strings.TrimPrefix(s, "sha256:")
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// pod adds what the sandbox of a container says. Of a container whose sandbox has gone,
// its own labels tell.
func (c *cri) pod(ctx context.Context, got *Container, id string, only bool) (*Container, error) {
	r, err := c.runtime.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{Id: id}})
	if err != nil {
		return nil, failure("list pods", err)
	}
	for _, found := range r.GetItems() {
		if found.GetId() != id {
			continue
		}
		m := found.GetMetadata()
		got.Pod, got.Namespace, got.PodUID = m.GetName(), m.GetNamespace(), m.GetUid()
		for key, value := range found.GetLabels() {
			got.Labels[key] = value
		}
		return got, nil
	}
	if only {
		return nil, errUnknown
	}
	return got, nil
}

// fromLabels takes what labels of a container say of it and its pod.
func (c *Container) fromLabels(labels map[string]string) {
	for key, value := range labels {
		c.Labels[key] = value
	}
	c.Pod, c.Namespace, c.PodUID = labels[labelPod], labels[labelNamespace], labels[labelUID]
	if name := labels[labelContainer]; name != "" {
		c.Name = name
	}
}

// failure also understands runtimes that answer with an error for what they do not know.
func failure(what string, err error) error {
	if status.Code(err) == codes.NotFound {
		return errUnknown
	}
	return fmt.Errorf("%s: %w", what, err)
}
