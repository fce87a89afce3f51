package process

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestListeners: who listens is found by a process that shares the network namespace, and not by one
// of another, where the same port is another's.
func TestListeners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	start := func(attr *syscall.SysProcAttr) int {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = attr
		assert.NilError(t, cmd.Start())
		t.Cleanup(func() {
			assert.Check(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed
		})
		return cmd.Process.Pid
	}
	here := Listening{start(nil), port}
	elsewhere := Listening{start(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}), port}
	other, gone := Listening{here.PID, port + 1}, Listening{1 << 30, port}
	table := New(nil)
	defer table.Close()
	got := table.Listeners([]Listening{here, elsewhere, other, gone}, time.Minute)
	assert.Check(t, len(got) == 1 && got[here] == os.Getpid(), "%v", got)
	assert.Check(t, len(table.Listeners([]Listening{here}, 0)) == 0, "no time")
	assert.Check(t, len(table.Listeners(nil, time.Minute)) == 0)
}

// TestListenersShared: of processes that share a socket it is the first one's, and that of process 1
// only if nobody else has it.
func TestListenersShared(t *testing.T) {
	proc := t.TempDir()
	add := func(pid, space string, inodes ...string) {
		dir := filepath.Join(proc, pid)
		for _, d := range []string{"ns", "fd", "net"} {
			assert.NilError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
		}
		assert.NilError(t, os.Symlink("net:["+space+"]", filepath.Join(dir, "ns/net")))
		for _, inode := range inodes {
			assert.NilError(t, os.Symlink("socket:["+inode+"]", filepath.Join(dir, "fd", inode)))
		}
		lines := "sl\n0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 10\n1: 0100007F:0051 00000000:0000 0A 0:0 0:0 0 0 0 11\n"
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "net/tcp"), []byte(lines), 0o600))
	}
	add("1", "7", "10", "11")
	add("5", "8", "10")
	add("20", "7", "10")
	add("100", "7", "10")
	add("30", "7")
	assert.NilError(t, os.MkdirAll(filepath.Join(proc, "self"), 0o700))
	table := New(&Options{Proc: proc})
	defer table.Close()
	shared, alone, elsewhere := Listening{30, 0x50}, Listening{30, 0x51}, Listening{5, 0x51}
	got := table.Listeners([]Listening{shared, alone, elsewhere}, time.Minute)
	assert.Check(t, len(got) == 2 && got[shared] == 20 && got[alone] == 1, "%v", got)
}
