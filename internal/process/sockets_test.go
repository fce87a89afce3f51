package process

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
)

// ownSockets looks this process's sockets up, in the files and by sock_diag, where the kernel
// has that: both know the same.
func ownSockets(t *testing.T) Sockets {
	t.Helper()
	table := New(nil)
	defer table.Close()
	look := func() Sockets {
		list := table.Sockets([]int{os.Getpid()}, time.Minute)
		assert.Assert(t, len(list) == 1 && list[0].PID == os.Getpid(), "%+v", list)
		return list[0]
	}
	asked := look()
	t.Logf("sock_diag refused: %t", table.diag.refused.Load())
	table.diag.refused.Store(true)
	assert.DeepEqual(t, asked, look(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }))
	return asked
}

// connected returns both ends of a connection to a listener.
func connected(t *testing.T, l net.Listener) (opened, accepted net.Conn) {
	t.Helper()
	opened, err := net.Dial(l.Addr().Network(), l.Addr().String())
	assert.NilError(t, err)
	accepted, err = l.Accept()
	assert.NilError(t, err)
	t.Cleanup(func() { opened.Close(); accepted.Close() })
	return opened, accepted
}

// TestSockets: which end of a connection opened it.
func TestSockets(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": filepath.Join(t.TempDir(), "a b\n1")}[network]
			l, err := net.Listen(network, address)
			assert.NilError(t, err)
			opened, _ := connected(t, l)
			s := ownSockets(t)
			if network == "unix" { // its name is two lines: it does not look like one of a listener, and harms no other
				assert.Check(t, s.Opened >= 1, "%+v", s)
				return
			}
			assert.Check(t, s.Listens && s.Accepted == 1 && s.Opened == 1 && len(s.Connections) == 2 && !s.Partial, "%+v", s)
			for _, c := range s.Connections {
				local, remote := netip.MustParseAddrPort(opened.LocalAddr().String()), netip.MustParseAddrPort(opened.RemoteAddr().String())
				if c.Accepted {
					local, remote = remote, local
				}
				assert.Check(t, c.Local == local && c.Remote == remote, "%+v, want %v to %v", c, local, remote)
			}
			l.Close()
		})
	}
}

// TestSocketsOfUNIX: an accepted socket has its listener's name.
func TestSocketsOfUNIX(t *testing.T) {
	for name, address := range map[string]string{"path": filepath.Join(t.TempDir(), "a b"), "abstract": "@tailcam-" + filepath.Base(t.TempDir()) + t.Name()} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("unix", address)
			assert.NilError(t, err)
			defer l.Close()
			connected(t, l)
			s := ownSockets(t)
			assert.Check(t, s.Listens && s.Accepted == 1 && s.Opened == 1 && s.Connections == nil, "%+v", s)
		})
	}
}

// TestSocketsOfOthers: a program that has none is left out, as one that is no more.
func TestSocketsOfOthers(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	assert.NilError(t, cmd.Start())
	defer func() {
		assert.Check(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
	}()
	table := New(nil)
	defer table.Close()
	list := table.Sockets([]int{cmd.Process.Pid, 1 << 30}, time.Minute)
	assert.Check(t, len(list) == 0, "%+v", list)
	assert.Check(t, len(table.Sockets([]int{os.Getpid()}, 0)) == 0, "no time")
}

// TestForgedSockets: a line that claims another socket's number makes it say nothing, and what
// is no line is skipped.
func TestForgedSockets(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, lines ...string) {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")), 0o600))
	}
	write("tcp", "sl", "0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 10", "1: 0100007F:1F90 0200007F:0050 01 0:0 0:0 0 0 0 11",
		"2: zz:1 0100007F:0001 01 0:0 0:0 0 0 0 12", "3: 01:1 0100007F:0001 01 0:0 0:0 0 0 0 13", "4:", "5: 0100007F:1 0100007F:00001 01 a b c d e f")
	write("unix", "Num", "0: 2 0 10000 0001 01 20 /a", "0: 3 0 0 0001 03 21 /a", "0: 3 0 0 0001 03 22 /b", "0: 3 0 0 0001 03 11 /a", "0: 3 0 0 0002 03 23 /a", "0: 3 0 x 0001 03 24 /a")
	read := func(dir string) map[uint64]socket {
		return socketTable(func(add func(uint64, socket)) error { return readSocketFiles(dir, add) })
	}
	table := read(dir)
	assert.Check(t, table[10].listens && table[11].twice && table[20].listens && table[21].accepted && !table[22].accepted && len(table) == 5, "%+v", table)
	a := table[10].local.Addr()
	assert.Check(t, a == netip.MustParseAddr("127.0.0.1") || a == netip.MustParseAddr("1.0.0.127"), "%v", a)
	assert.Check(t, len(read(filepath.Join(dir, "missing"))) == 0)
}
