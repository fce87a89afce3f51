package runtimes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// containerdConfig has no network plugin, as pods use the machine's network, and copies layers, as
// not every kernel has overlayfs. disable_cgroup: resources need controllers that a machine
// with cgroup v1 does not have in v2; containers have a cgroup all the same.
const containerdConfig = `version = 2
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
func StartContainerd(t *testing.T) *CRI {
	t.Helper()
	daemon, ctr := tool(t, "containerd", "containerd"), tool(t, "ctr", "containerd")
	tool(t, "runc", "runc")
	c := &CRI{place: newPlace(t, "containerd"), Name: "containerd"}
	c.Socket = filepath.Join(c.dir, "s")
	file := filepath.Join(c.dir, "config.toml")
	assert.NilError(t, os.WriteFile(file, fmt.Appendf(nil, containerdConfig, c.dir, c.Socket, Image), 0o600))
	c.serve(c.Socket, daemon, "--config", file)
	archive := filepath.Join(c.dir, "image.tar")
	writeImage(t, archive, Nap(t, c.dir))
	c.run(ctr, "--address", c.Socket, "--namespace", "k8s.io", "images", "import", "--snapshotter", "native", archive)
	c.connect()
	return c
}
