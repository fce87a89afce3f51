package process

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestContainerID(t *testing.T) {
	const other = "f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0"
	for path, want := range map[string]string{
		"":                            "",
		"/":                           "",
		"/system.slice/nginx.service": "",
		"/user.slice/user-1000.slice/session-2.scope":                               "",
		"/system.slice/docker-" + hex64 + ".scope":                                  hex64,
		"/docker/" + hex64:                                                          hex64,
		"/docker/" + hex64 + "/system.slice/ssh.service":                            hex64,
		"/docker/buildx/" + hex64:                                                   hex64,
		"/kubepods/burstable/pod0a1b/" + hex64:                                      hex64,
		"/kubepods.slice/kubepods-pod0a1b.slice/cri-containerd-" + hex64 + ".scope": hex64,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/crio-" + hex64 + ".scope": hex64,
		"/kubepods.slice/kubepods-pod1.slice/crio-conmon-" + hex64 + ".scope":                               "",
		"/kubepods.slice/kubepods-pod0a1b.slice":                                                            "",
		"/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:" + hex64:            hex64,
		"/machine.slice/libpod-" + hex64 + ".scope/container":                                               hex64,
		"/machine.slice/libpod-conmon-" + hex64 + ".scope":                                                  "",
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + hex64 + ".scope":               hex64,
		"/docker/" + other + "/kubelet.slice/kubelet-kubepods.slice/x/cri-containerd-" + hex64 + ".scope":   hex64,
		"/system.slice/nerdctl-" + hex64 + ".scope":                                                         hex64,
		"/lxc/web1":                                         "web1",
		"/lxc.payload/web1/init.scope":                      "web1",
		"/lxc.payload.web1/system.slice/x.service":          "web1",
		"/lxc.monitor.web1":                                 "",
		"/machine.slice/systemd-nspawn@box.service/payload": "box",
		"/docker/" + strings.ToUpper(hex64):                 "",
		"/docker/" + hex64[1:]:                              "",
		"/docker/x" + hex64[1:]:                             "",
	} {
		assert.Check(t, is.Equal(ContainerID(path), want), "%s", path)
	}
}

func TestParseMountinfo(t *testing.T) {
	got, err := cgroup2Points(strings.NewReader(`31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
33 31 0:38 /part /mnt/part rw shared:4 - cgroup2 cgroup rw
34 31 0:38 / /mnt/a\040b\134c rw shared:4 master:1 - cgroup2 cgroup2 rw
broken
`))
	want := []string{`/mnt/a b\c`, "/mnt/part"}
	assert.Check(t, err == nil && reflect.DeepEqual(got, want), "got %q, %v; want %q", got, err, want)
}

func TestNoCgroup2(t *testing.T) {
	proc := t.TempDir()
	assert.NilError(t, os.Mkdir(filepath.Join(proc, "self"), 0o700))
	assert.NilError(t, os.WriteFile(filepath.Join(proc, "self/mountinfo"), nil, 0o600))
	table := New(&Options{Proc: proc})
	_, err := table.CgroupPath(1)
	assert.Check(t, is.ErrorIs(err, ErrNoCgroup2))
	assert.Check(t, is.ErrorIs(table.Walk(func(uint64, string) {}), ErrNoCgroup2))
}

// makeCgroup makes a cgroup below the root for the time of the test, and
// returns its path in the hierarchy, its directory and its id.
func makeCgroup(t *testing.T, table *Table, name string) (path, dir string, id uint64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	root, err := table.hierarchy.open()
	assert.NilError(t, err)
	path = "/" + name
	dir = root.Name() + path
	assert.NilError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { _ = os.Remove(dir) })
	var st syscall.Stat_t
	assert.NilError(t, syscall.Stat(dir, &st))
	return path, dir, st.Ino
}

func TestCgroupPath(t *testing.T) {
	for name, search := range map[string]bool{"by handle": false, "by search": true} {
		t.Run(name, func(t *testing.T) {
			table := New(nil)
			defer table.Close()
			table.hierarchy.noHandles.Store(search)
			outer := fmt.Sprintf("tailcam-test-%d", os.Getpid())
			makeCgroup(t, table, outer)
			path, dir, id := makeCgroup(t, table, outer+"/docker-"+hex64+".scope")

			got, err := table.CgroupPath(id)
			assert.Assert(t, err == nil && got == path, "got %q, %v; want %q", got, err, path)
			if !search && table.hierarchy.noHandles.Load() {
				t.Log("opening by id is not permitted here: both ways are the search")
			}
			got, err = table.CgroupPath(1)
			assert.Check(t, err == nil && got == "/", "root: got %q, %v", got, err)
			_, err = table.CgroupPath(1 << 40)
			assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "no such cgroup")

			seen := map[string]uint64{}
			order := []string{}
			assert.NilError(t, table.Walk(func(id uint64, path string) {
				seen[path] = id
				order = append(order, path)
			}))
			assert.Check(t, seen[path] == id && seen["/"] == 1 && order[0] == "/",
				"walk: got id %d for %s and %d for /, want %d and 1", seen[path], path, seen["/"], id)

			// A process in it.
			cmd := sleeper(t)
			assert.NilError(t, os.WriteFile(dir+"/cgroup.procs", fmt.Append(nil, cmd.Process.Pid), 0))
			who, err := table.Identity(cmd.Process.Pid)
			assert.Check(t, err == nil && who.Cgroup == path && who.Container == hex64, "got %+v, %v", who, err)
			stop(t, cmd)

			assert.NilError(t, os.Remove(dir))
			got, err = table.CgroupPath(id)
			assert.Check(t, err == nil && got == path, "asked for before it went: got %q, %v", got, err)
			fresh := New(nil)
			defer fresh.Close()
			fresh.hierarchy.noHandles.Store(search)
			got, err = fresh.CgroupPath(id)
			assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "gone: got %q", got)
		})
	}
}

func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	assert.NilError(t, cmd.Process.Kill())
	_ = cmd.Wait()
}
