package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// imageVersion is what the images of these tests have as their tag.
const imageVersion = "v1.0.0"

// makeImage builds the image as `make image` does, for both architectures unless told.
func makeImage(t *testing.T, dir string, arch ...string) string {
	t.Helper()
	run(t, filepath.Join(root, "scripts/image.sh"), append([]string{imageVersion, dir}, arch...)...)
	return filepath.Join(dir, "tailcam-"+imageVersion+"-image.tar")
}

var image struct {
	sync.Once
	file string
}

// theImage is built once.
func theImage(t *testing.T) string {
	t.Helper()
	if os.Getenv("NFPM") == "" {
		t.Skip("not under `make test-packages`")
	}
	image.Do(func() { image.file = makeImage(t, temporary(t)) })
	return image.file
}

// descriptor is a reference in the OCI image layout.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Annotations map[string]string `json:"annotations"`
	Platform    struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// manifest is an index, which has manifests, or an image, which has a configuration and layers.
type manifest struct {
	Manifests []descriptor `json:"manifests"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// entries reads a tar archive.
func entries(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		assert.NilError(t, err)
		assert.Check(t, h.Uid == 0 && h.Gid == 0 && h.Mode&0o022 == 0 || h.Name == "./tmp/", "%s: %d:%d, %o", h.Name, h.Uid, h.Gid, h.Mode)
		files[h.Name], err = io.ReadAll(archive)
		assert.NilError(t, err)
	}
}

// TestImageReproducible: built again, the image has the same bytes, which its digest names.
func TestImageReproducible(t *testing.T) {
	first, again := imageLayout(t, theImage(t)), imageLayout(t, makeImage(t, t.TempDir(), host(t)))
	for name := range again {
		assert.Check(t, name == "index.json" || bytes.Equal(first[name], again[name]) || isIndex(again[name]), "%s differs", name)
	}
}

// imageLayout are the files of an image archive.
func imageLayout(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	assert.NilError(t, err)
	defer f.Close()
	return entries(t, f)
}

// isIndex reports whether a blob lists the images of architectures.
func isIndex(blob []byte) bool {
	var m manifest
	return json.Unmarshal(blob, &m) == nil && len(m.Manifests) > 0
}

// TestImageContents: there is an image for both architectures, with a program for it, the shipped
// files, the licences of all that is linked into it, and nothing else.
func TestImageContents(t *testing.T) {
	layout := imageLayout(t, theImage(t))
	read := func(d descriptor) (m manifest) {
		t.Helper()
		assert.NilError(t, json.Unmarshal(layout["blobs/"+strings.Replace(d.Digest, ":", "/", 1)], &m), d.Digest)
		return m
	}
	var top manifest
	assert.NilError(t, json.Unmarshal(layout["index.json"], &top))
	assert.Assert(t, is.Len(top.Manifests, 1))
	assert.Check(t, is.Equal(top.Manifests[0].Annotations["org.opencontainers.image.ref.name"], "ghcr.io/tailcam/tailcam:"+imageVersion))
	want := map[string]string{"amd64": "\x3e\x00", "arm64": "\xb7\x00"} // e_machine: EM_X86_64, EM_AARCH64
	for _, of := range read(top.Manifests[0]).Manifests {
		image := read(of)
		assert.Assert(t, is.Len(image.Layers, 1))
		layer, err := gzip.NewReader(bytes.NewReader(layout["blobs/"+strings.Replace(image.Layers[0].Digest, ":", "/", 1)]))
		assert.NilError(t, err)
		files := entries(t, layer)
		program := files["./usr/bin/tailcam"]
		assert.Assert(t, len(program) > 20)
		assert.Check(t, is.Equal(string(program[18:20]), want[of.Platform.Architecture]), "%+v", of.Platform)
		delete(want, of.Platform.Architecture)
		for _, path := range []string{
			"etc/tailcam/tailcam.yaml", "etc/tailcam/conf.d/", "etc/tailcam/rules.d/", "usr/lib/tailcam/rules.d/wakeup.yaml",
			"usr/lib/tailcam/actions/save-top.sh", "usr/share/licenses/tailcam/LICENSE", "usr/share/licenses/tailcam/BSD-2-Clause.txt",
			"usr/share/licenses/tailcam/libraries/go/LICENSE", "usr/share/licenses/tailcam/libraries/github.com/cilium/ebpf/LICENSE",
			"usr/share/tailcam/schemas/outlier.v1.json", "var/lib/tailcam/",
		} {
			_, ok := files["./"+path]
			assert.Check(t, ok, "%s is missing", path)
		}
		for path := range files {
			assert.Check(t, !strings.Contains(path, "/share/man/") && !strings.Contains(path, "/lib/systemd/"), path)
		}
	}
	assert.Check(t, is.Len(want, 0))
}

// podman is podman with a store of its own, so that it meets no other, and leaves nothing.
type podman struct {
	t    *testing.T
	path string
	dir  string
}

func newPodman(t *testing.T) *podman {
	t.Helper()
	needRoot(t)
	needTool(t, "runc", "runc")
	p := &podman{t: t, path: needTool(t, "podman", "podman"), dir: t.TempDir()}
	t.Cleanup(func() {
		_ = p.command("rm", "--all", "--force", "--time", "0").Run()
		out, err := p.command("system", "reset", "--force").CombinedOutput()
		assert.Check(t, err == nil, "%v\n%s", err, out)
	})
	return p
}

func (p *podman) command(args ...string) *exec.Cmd {
	in := func(name string) string { return filepath.Join(p.dir, name) }
	return exec.Command(p.path, append([]string{
		"--root", in("root"), "--runroot", in("run"), "--tmpdir", in("tmp"), "--storage-driver", "vfs",
		"--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--log-level", "error",
	}, args...)...)
}

// do runs a command that must succeed, and returns its standard output.
func (p *podman) do(args ...string) string {
	p.t.Helper()
	code, out, errOut := p.try(args...)
	assert.Assert(p.t, code == 0, "podman %s: %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	return out
}

func (p *podman) try(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	var out, errOut bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	assert.Assert(p.t, err == nil || errors.As(err, &exit), "%v", err)
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}
