package runtimes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Docker is Docker's daemon, with a containerd of its own.
type Docker struct {
	*place
	Socket string
	args   []string
}

// StartDocker runs one until the end of the test. Its containers use the machine's network.
func StartDocker(t *testing.T) *Docker {
	t.Helper()
	daemon, client := tool(t, "dockerd", "docker.io"), tool(t, "docker", "docker.io")
	tool(t, "runc", "runc")
	d := &Docker{place: newPlace(t, "docker")}
	d.Socket = filepath.Join(d.dir, "s")
	config := filepath.Join(d.dir, "daemon.json") // not the machine's
	assert.NilError(t, os.WriteFile(config, []byte("{}"), 0o600))
	d.args = []string{client, "--host", "unix://" + d.Socket}
	d.serve(d.Socket, daemon, "--config-file", config, "--host", "unix://"+d.Socket, "--data-root", filepath.Join(d.dir, "root"),
		"--exec-root", filepath.Join(d.dir, "run"), "--pidfile", filepath.Join(d.dir, "pid"), "--storage-driver", "vfs",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/"+filepath.Base(d.group), "--log-level", "warn")
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // it answers after it has its socket
		if exec.Command(client, "--host", "unix://"+d.Socket, "version").Run() == nil {
			break
		}
		assert.Assert(t, time.Now().Before(end), "dockerd does not answer")
	}
	archive := filepath.Join(d.dir, "image.tar")
	writeImage(t, archive, Nap(t, d.dir))
	d.run(append(d.args, "load", "--quiet", "--input", archive)...)
	return d
}

// Run starts a container that naps, and returns its id.
func (d *Docker) Run(name, micros, label string) (id string) {
	d.t.Helper()
	id = d.run(append(d.args, "run", "--detach", "--name", name, "--label", label, "--network", "host", "--log-driver", "none",
		"--pull", "never", Image, micros)...)
	d.t.Cleanup(func() { d.run(append(d.args, "rm", "--force", name)...) })
	return id
}
