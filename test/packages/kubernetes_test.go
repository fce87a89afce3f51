package packages

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const kubernetesDir = root + "/configs/kubernetes"

// kubernetesSchemas is the OpenAPI document of a Kubernetes release, with closed objects.
func kubernetesSchemas(t *testing.T) (*jsonschema.Schema, map[string]string) {
	t.Helper()
	file := os.Getenv("KUBERNETES_OPENAPI")
	if file == "" {
		t.Skip("not under `make test-packages`")
	}
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	var all struct {
		Definitions map[string]*jsonschema.Schema `json:"definitions"`
	}
	assert.NilError(t, json.Unmarshal(text, &all))
	kinds := map[string]string{}
	for name, s := range all.Definitions {
		if len(s.Properties) > 0 && s.AdditionalProperties == nil {
			s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // a misspelt field
		}
		list, _ := s.Extra["x-kubernetes-group-version-kind"].([]any)
		for _, of := range list {
			gvk, _ := of.(map[string]any)
			kinds[strings.TrimPrefix(gvk["group"].(string)+"/", "/")+gvk["version"].(string)+" "+gvk["kind"].(string)] = name
		}
	}
	return &jsonschema.Schema{Schema: "http://json-schema.org/draft-07/schema#", Definitions: all.Definitions}, kinds
}

// objects are the documents of a YAML stream, as JSON has them.
func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var list []map[string]any
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return list
		}
		assert.NilError(t, err)
		data, err := json.Marshal(o)
		assert.NilError(t, err)
		var plain map[string]any
		assert.NilError(t, json.Unmarshal(data, &plain))
		list = append(list, plain)
	}
}

// kustomized is what `kubectl apply -k` applies.
func kustomized(t *testing.T, dir string) string {
	t.Helper()
	program := os.Getenv("KUSTOMIZE")
	if program == "" {
		t.Skip("not under `make test-packages`")
	}
	return run(t, program, "build", dir)
}

// TestKubernetesSchemas: each object is as the API of Kubernetes has it, and an overlay works.
func TestKubernetesSchemas(t *testing.T) {
	schemas, kinds := kubernetesSchemas(t)
	check := func(o map[string]any) error {
		name := kinds[o["apiVersion"].(string)+" "+o["kind"].(string)]
		assert.Assert(t, name != "", "unknown kind: %v %v", o["apiVersion"], o["kind"])
		one := schemas.CloneSchemas()
		one.Ref = "#/definitions/" + name
		resolved, err := one.Resolve(nil)
		assert.NilError(t, err)
		return resolved.Validate(o)
	}
	overlay := t.TempDir()
	base, err := filepath.Abs(kubernetesDir)
	assert.NilError(t, err)
	relative, err := filepath.Rel(overlay, base)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(overlay, "db.yaml"), []byte("disable: [wakeup]\n"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(`resources: [`+relative+`]
namespace: observability
images: [{name: ghcr.io/tailcam/tailcam, newName: registry.example/tailcam, newTag: v9}]
configMapGenerator: [{name: tailcam-rules, behavior: merge, files: [db.yaml]}]
`), 0o600))
	var seen []string
	for _, dir := range []string{kubernetesDir, overlay} {
		for _, o := range objects(t, kustomized(t, dir)) {
			assert.Check(t, check(o), "%v", o["kind"])
			seen = append(seen, o["kind"].(string))
		}
	}
	slices.Sort(seen)
	assert.Check(t, is.DeepEqual(slices.Compact(seen), []string{"ConfigMap", "DaemonSet", "Namespace", "PriorityClass"}))
	for _, want := range []string{"image: registry.example/tailcam:v9", "namespace: observability", "disable: [wakeup]"} {
		assert.Check(t, is.Contains(kustomized(t, overlay), want))
	}

	// The check is one: what is misspelt, missing or of another type is refused.
	good := kustomized(t, kubernetesDir)
	for _, c := range []struct{ from, to string }{
		{"hostPID: true", "hostPid: true"}, {"hostPID: true", "hostPID: 1"}, {"mountPath: /run/tailcam", "path: /run/tailcam"},
		{"type: Unconfined", "kind: Unconfined"}, {"selector:", "selektor:"},
	} {
		assert.Assert(t, is.Contains(good, c.from))
		bad := objects(t, strings.Replace(good, c.from, c.to, 1))
		assert.Check(t, slices.ContainsFunc(bad, func(o map[string]any) bool { return check(o) != nil }), "%s is accepted", c.to)
	}
}

// daemonSet is the part of the DaemonSet that a container is made of.
type daemonSet struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				HostPID    bool `yaml:"hostPID"`
				Containers []struct {
					Image           string
					Env             []struct{ Name, Value string }
					SecurityContext struct {
						AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
						ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
						Privileged               bool
						Capabilities             struct{ Drop, Add []string }
						SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
					} `yaml:"securityContext"`
					Resources struct {
						Limits map[string]string
					}
					LivenessProbe struct{ Exec struct{ Command []string } } `yaml:"livenessProbe"`
					VolumeMounts  []struct {
						Name        string
						MountPath   string `yaml:"mountPath"`
						Propagation string `yaml:"mountPropagation"`
						ReadOnly    bool   `yaml:"readOnly"`
					} `yaml:"volumeMounts"`
				}
				Volumes []struct {
					Name     string
					HostPath *struct{ Path string } `yaml:"hostPath"`
					EmptyDir *struct {
						SizeLimit string `yaml:"sizeLimit"`
					} `yaml:"emptyDir"`
					ConfigMap *struct{ Name string } `yaml:"configMap"`
				}
			}
		}
	}
}

// theDaemonSet reads it, and the files of the ConfigMaps by their names.
func theDaemonSet(t *testing.T) (set daemonSet, maps map[string]map[string]string) {
	t.Helper()
	maps = map[string]map[string]string{}
	for d := yaml.NewDecoder(strings.NewReader(kustomized(t, kubernetesDir))); ; {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			assert.Assert(t, is.Len(set.Spec.Template.Spec.Containers, 1))
			return set, maps
		}
		assert.NilError(t, err)
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Data     map[string]string
		}
		assert.NilError(t, n.Decode(&o))
		switch o.Kind {
		case "ConfigMap":
			maps[o.Metadata.Name] = o.Data
		case "DaemonSet":
			assert.NilError(t, n.Decode(&set))
		}
	}
}

// TestKubernetesCapabilities: the container has what the systemd unit has, and the same memory.
func TestKubernetesCapabilities(t *testing.T) {
	set, _ := theDaemonSet(t)
	c := &set.Spec.Template.Spec.Containers[0]
	unit, err := os.ReadFile(root + "/configs/systemd/tailcam.service")
	assert.NilError(t, err)
	var want []string
	for line := range bytes.Lines(unit) {
		if list, ok := bytes.CutPrefix(line, []byte("CapabilityBoundingSet=")); ok {
			for _, name := range strings.Fields(string(list)) {
				want = append(want, strings.TrimPrefix(name, "CAP_"))
			}
		}
	}
	got := slices.Clone(c.SecurityContext.Capabilities.Add)
	slices.Sort(want)
	slices.Sort(got)
	assert.Check(t, is.DeepEqual(got, want))
	assert.Check(t, is.DeepEqual(c.SecurityContext.Capabilities.Drop, []string{"ALL"}))
	assert.Check(t, is.Contains(string(unit), "\nMemoryMax="+strings.TrimSuffix(c.Resources.Limits["memory"], "i")+"\n"))
}
