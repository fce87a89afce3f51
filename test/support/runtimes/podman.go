package runtimes

import (
	"path/filepath"
	"testing"
)

// Podman is a Podman whose service speaks Docker's API.
type Podman struct {
	*place
	Socket string
	args   []string
}

// StartPodman runs its service until the end of the test.
func StartPodman(t *testing.T) *Podman {
	t.Helper()
	tool(t, "runc", "runc")
	p := &Podman{place: newPlace(t, "podman")}
	p.Socket = filepath.Join(p.dir, "s")
	p.adopt("libpod_parent") // Podman moves itself there, whatever the parent of its containers is
	p.args = []string{
		tool(t, "podman", "podman"), "--root", filepath.Join(p.dir, "root"), "--runroot", filepath.Join(p.dir, "run"),
		"--tmpdir", filepath.Join(p.dir, "tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "runc",
		"--events-backend", "file",
	}
	archive := filepath.Join(p.dir, "image.tar")
	writeImage(t, archive, Nap(t, p.dir))
	p.run(append(p.args, "load", "--quiet", "--input", archive)...)
	p.serve(p.Socket, append(p.args, "system", "service", "--time", "0", "unix://"+p.Socket)...)
	return p
}

// Run starts a container that naps, and returns its id.
func (p *Podman) Run(name, micros, label string) (id string) {
	p.t.Helper()
	id = p.run(append(p.args, "run", "--detach", "--cgroups", "no-conmon", "--cgroup-parent", "/"+filepath.Base(p.group), "--name", name, "--label", label, "--network", "host", "--pids-limit", "-1", "--ulimit", "nofile=64:64", "--ulimit", "nproc=64:64",
		"--log-driver", "none", "--pull", "never", Image, micros)...)
	p.t.Cleanup(func() { p.run(append(p.args, "rm", "--force", "--ignore", "--time", "0", name)...) })
	return id
}
