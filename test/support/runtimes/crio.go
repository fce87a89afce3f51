package runtimes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// crioConfig has no network plugin, as pods use the machine's network, and copies layers, as
// not every kernel has overlayfs.
const crioConfig = `[crio]
root = "%[1]s/root"
runroot = "%[1]s/run"
storage_driver = "vfs"
log_dir = "%[1]s/logs"
version_file = "%[1]s/version"
version_file_persist = "%[1]s/version-persist"
clean_shutdown_file = "%[1]s/clean"
[crio.api]
listen = "%[2]s"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
selinux = false
seccomp_profile = "unconfined"
apparmor_profile = "unconfined"
pinns_path = "%[4]s"
namespaces_dir = "%[1]s/ns"
container_exits_dir = "%[1]s/exits"
container_attach_socket_dir = "%[1]s/attach"
hooks_dir = []
drop_infra_ctr = true
[crio.runtime.runtimes.runc]
runtime_path = "%[5]s"
runtime_root = "%[1]s/runc"
monitor_path = "%[6]s"
monitor_cgroup = "pod"
[crio.image]
pause_image = "%[3]s"
pause_command = ""
signature_policy = "%[1]s/policy.json"
[crio.network]
network_dir = "%[1]s/cni"
plugin_dirs = ["%[1]s/cni"]
`

// StartCRIO runs a CRI-O until the end of the test. No Debian has it: where it is not
// installed, the test is skipped.
func StartCRIO(t *testing.T) *CRI {
	t.Helper()
	daemon, err := exec.LookPath("crio")
	pinns, errPinns := exec.LookPath("pinns")
	if err != nil || errPinns != nil {
		t.Skip("needs crio and pinns, which Debian does not have")
	}
	runc, conmon, podman := tool(t, "runc", "runc"), tool(t, "conmon", "conmon"), tool(t, "podman", "podman")
	c := &CRI{place: newPlace(t, "crio"), Name: "cri-o"}
	c.Socket = filepath.Join(c.dir, "s")
	file := filepath.Join(c.dir, "crio.conf")
	assert.NilError(t, os.WriteFile(file, fmt.Appendf(nil, crioConfig, c.dir, c.Socket, Image, pinns, runc, conmon), 0o600))
	policy := filepath.Join(c.dir, "policy.json")
	assert.NilError(t, os.WriteFile(policy, []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`), 0o600))
	archive := filepath.Join(c.dir, "image.tar")
	writeImage(t, archive, Nap(t, c.dir))
	c.run(podman, "--root", filepath.Join(c.dir, "root"), "--runroot", filepath.Join(c.dir, "run"), "--storage-driver", "vfs",
		"load", "--quiet", "--input", archive)
	c.serve(c.Socket, daemon, "--config", file, "--config-dir", "")
	c.connect()
	return c
}
