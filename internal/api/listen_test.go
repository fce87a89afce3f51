package api

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/child"
)

func TestListenModes(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		t.Run(fmt.Sprintf("umask %03o", umask), func(t *testing.T) {
			path := socketPath(t)
			old := syscall.Umask(umask)
			s, err := Listen(&ListenOptions{Path: path})
			syscall.Umask(old)
			assert.NilError(t, err)
			defer s.Close()
			for p, want := range map[string]fs.FileMode{
				path:               fs.ModeSocket | 0o660,
				filepath.Dir(path): fs.ModeDir | 0o750,
				path + ".lock":     0o640 &^ fs.FileMode(umask),
			} {
				info, err := os.Stat(p)
				assert.NilError(t, err)
				assert.Check(t, is.Equal(info.Mode(), want), "%s has mode", p)
			}
		})
	}
}

func TestListenGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root may give a file to a group it is not in")
	}
	const group, gid = "daemon", 1 // in every /etc/group of Linux
	path := socketPath(t)
	s, err := Listen(&ListenOptions{Path: path, Group: group})
	assert.NilError(t, err)
	defer s.Close()
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		assert.NilError(t, err)
		got := info.Sys().(*syscall.Stat_t).Gid
		assert.Check(t, got == gid, "%s belongs to group %d, want %d", p, got, gid)
	}
}

func TestListenLeavesForeignDirectoryAlone(t *testing.T) {
	path := socketPath(t)
	dir := filepath.Dir(path)
	assert.NilError(t, os.Mkdir(dir, 0o777))
	assert.NilError(t, os.Chmod(dir, 0o1777))
	before, _ := os.Stat(dir)
	s, err := Listen(&ListenOptions{Path: path})
	assert.NilError(t, err)
	defer s.Close()
	after, _ := os.Stat(dir)
	assert.Check(t, after.Mode() == before.Mode(),
		"mode of an existing directory became %v, was %v", after.Mode(), before.Mode())
}

func TestListenTwice(t *testing.T) {
	path := socketPath(t)
	first, err := Listen(&ListenOptions{Path: path})
	assert.NilError(t, err)
	_, err = Listen(&ListenOptions{Path: path})
	want := fmt.Sprintf("another daemon is running, pid %d: stop it first, or use another socket", os.Getpid())
	assert.Check(t, is.Error(err, want))
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first daemon's socket is gone: %v", err)
	} else {
		conn.Close()
	}
	assert.NilError(t, first.Close())
	_, err = os.Stat(path)
	assert.Check(t, err != nil, "the socket is there after Close")
	second, err := Listen(&ListenOptions{Path: path})
	assert.NilError(t, err, "after Close")
	second.Close()
}

// A crashed daemon is a real one here: this test binary, killed.
func TestListenAfterCrash(t *testing.T) {
	const marker = "TAILCAM_TEST_LISTEN"
	if path := os.Getenv(marker); path != "" {
		_, err := Listen(&ListenOptions{Path: path})
		assert.NilError(t, err)
		fmt.Println("listening")
		select {}
	}
	path := socketPath(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestListenAfterCrash$")
	cmd.Env = append(os.Environ(), marker+"="+path)
	assert.Equal(t, child.Talk(t, cmd).Line(), "listening")
	want := fmt.Sprintf("pid %d", cmd.Process.Pid)
	_, err := Listen(&ListenOptions{Path: path})
	assert.ErrorContains(t, err, want)
	cmd.Process.Kill()
	cmd.Wait()
	_, err = os.Stat(path)
	assert.NilError(t, err, "a killed daemon leaves its socket")
	_, err = NewClient(path).Status(context.Background())
	assert.Check(t, err != nil && strings.HasPrefix(err.Error(), "daemon not reachable at "+path),
		"client of a stale socket: %v", err)
	s, err := Listen(&ListenOptions{Path: path})
	assert.NilError(t, err, "after a crash")
	s.Close()
}

func TestListenRefuses(t *testing.T) {
	occupied := socketPath(t)
	assert.NilError(t, os.MkdirAll(filepath.Dir(occupied), 0o755))
	assert.NilError(t, os.WriteFile(occupied, []byte("precious"), 0o600))
	linked := socketPath(t)
	assert.NilError(t, os.MkdirAll(filepath.Dir(linked), 0o755))
	assert.NilError(t, os.Symlink(occupied, linked+".lock"))
	for path, want := range map[string]string{
		occupied:                         "exists and is not a socket",
		linked:                           "too many levels of symbolic links",
		occupied + "/below/s.sock":       "not a directory",
		"/" + strings.Repeat("long", 30): "must be at most 107 bytes",
	} {
		_, err := Listen(&ListenOptions{Path: path})
		assert.Check(t, is.ErrorContains(err, want), "Listen(%.40s)", path)
	}
	data, _ := os.ReadFile(occupied)
	assert.Check(t, string(data) == "precious", "Listen changed a file that is not its own")
}
