// Package stuckfs mounts a file system of one file that can be made not to
// answer, and one that mirrors a directory and can be made to fail or to be slow,
// for tests of what must go on then. Needs root and FUSE.
//
// A child of the test serves it, in a mount namespace of its own, and leaves
// with the test: however that ends, nobody waits for ever, and no mount stays.
package stuckfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// FS is a mounted file system. One goroutine at a time may call its methods.
type FS struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	name string
}

// Mount mounts a file system until the end of the test, with one executable
// file of that name, which every user may run and which holds what the file at
// source does. It answers at first.
func Mount(t *testing.T, name, source string) *FS {
	t.Helper()
	text, err := os.ReadFile(source)
	assert.NilError(t, err)
	dir := t.TempDir()
	assert.NilError(t, os.Chmod(dir, 0o755))
	file := filepath.Join(dir, name)
	assert.NilError(t, os.WriteFile(file, text, 0o600))
	assert.NilError(t, os.Chmod(file, 0o755)) // whatever the umask
	return mount(t, name, dir)
}

// mount mounts a mirror of a directory; name is that of the file of interest.
func mount(t *testing.T, name, dir string) *FS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: mounting a file system needs CAP_SYS_ADMIN")
	}
	f := &FS{t: t, cmd: exec.Command("/proc/self/exe"), name: name}
	f.cmd.Args = []string{role, dir}
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := f.cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := f.cmd.StdoutPipe()
	assert.NilError(t, err)
	f.in, f.out = in, bufio.NewScanner(out)
	assert.NilError(t, f.cmd.Start())
	t.Cleanup(func() {
		in.Close() // it leaves then
		assert.Check(t, f.cmd.Wait(), "the stuck file system")
	})
	assert.Equal(t, f.answer(), done)
	return f
}

// Path is that of the file, as root sees it from here.
func (f *FS) Path() string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", f.cmd.Process.Pid), mountPoint, f.name)
}

// Program is a command line that runs the file as that user, in the mount
// namespace where every user sees it.
func (f *FS) Program(uid int) []string {
	return []string{
		"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", f.cmd.Process.Pid),
		fmt.Sprintf("--setuid=%d", uid), fmt.Sprintf("--setgid=%d", uid), "--", filepath.Join(mountPoint, f.name),
	}
}

// Hang lets reads wait from now on, but for what the kernel has cached.
func (f *FS) Hang() { f.order(24*time.Hour, Read) }

// Answer answers the reads that wait, and all later ones.
func (f *FS) Answer() { f.order(0) }

// order lets these operations take so long, or fail if that is 0, and all others work at once.
func (f *FS) order(each time.Duration, ops ...Op) {
	f.t.Helper()
	_, err := fmt.Fprintln(f.in, each, strings.Trim(fmt.Sprint(ops), "[]"))
	assert.NilError(f.t, err)
	said := f.answer()
	assert.Assert(f.t, said == done, "the stuck file system said %q", said)
}

func (f *FS) answer() string {
	f.t.Helper()
	assert.Assert(f.t, f.out.Scan(), "the stuck file system has ended: %v", f.out.Err())
	return f.out.Text()
}
