package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/test/support/child"
)

// sleeper starts a process that ends with the test, under the given arguments.
func sleeper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("cat")
	if err != nil {
		t.Skipf("needs cat: %v", err)
	}
	cmd := &exec.Cmd{Path: path, Args: append([]string{"cat"}, args...)}
	child.Talk(t, cmd)
	return cmd
}

func TestIdentity(t *testing.T) {
	table := New(&Options{TTL: time.Hour, Timeout: time.Minute})
	defer table.Close()
	cmd := sleeper(t, "-u", "-", "-")
	who := alive(t, table, cmd.Process.Pid)
	assert.Check(t, who.Cmdline == "cat -u - -", "got command line %q", who.Cmdline)
	text, err := os.ReadFile("/proc/self/cgroup")
	assert.NilError(t, err)
	want, _ := parseCgroups(text)
	assert.Check(t, who.Cgroup == want, "got cgroup %q, want that of the test, %q", who.Cgroup, want)
	// It is remembered after its end; a stranger under its pid would not get it.
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	again, err := table.Identity(cmd.Process.Pid)
	assert.Check(t, err == nil && again == who, "after exit: got %+v, %v", again, err)
	_, err = New(nil).Identity(cmd.Process.Pid)
	assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "never seen and gone")
	for _, pid := range []int{0, -1, 1 << 30} {
		_, err := table.Identity(pid)
		assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "pid %d", pid)
	}
	n := table.Timeouts()
	assert.Check(t, n == 0, "%d timeouts", n)
}

// fakeProc writes files like those of a process, to play reuse of a pid.
func fakeProc(t *testing.T, proc string, pid int, comm string, start int, cmdline string) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	assert.NilError(t, os.MkdirAll(dir, 0o700))
	for name, text := range map[string]string{
		"stat":    fmt.Sprintf("%d (%s) S 1%s %d 0\n", pid, comm, strings.Repeat(" 0", 17), start),
		"cgroup":  "3:memory:/docker/" + hex64 + "\n0::/some/path (deleted)\n",
		"cmdline": cmdline,
	} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

func TestIdentityOfReusedPID(t *testing.T) {
	proc := t.TempDir()
	table := New(&Options{Proc: proc, TTL: time.Hour})
	check := func(want string) {
		t.Helper()
		who, err := table.Identity(7)
		assert.Check(t, err == nil && who == (Identity{Cmdline: want, Cgroup: "/some/path", Container: hex64, V1Cgroups: V1Cgroups{MemoryCgroup: "/docker/" + hex64}}),
			"got %+v, %v; want %q", who, err, want)
	}
	fakeProc(t, proc, 7, "a) (b", 100, "first\x00arg\x00")
	check("first arg")
	fakeProc(t, proc, 7, "a) (b", 100, "changed\x00")
	check("first arg") // remembered
	fakeProc(t, proc, 7, "a) (b", 101, "second\x00")
	check("second")
	fakeProc(t, proc, 7, "execed", 101, "third\x00")
	check("third")
	assert.NilError(t, os.RemoveAll(filepath.Join(proc, "7")))
	check("third")
}

func TestIdentityExpires(t *testing.T) {
	proc := t.TempDir()
	table := New(&Options{Proc: proc, TTL: time.Nanosecond})
	for _, want := range []string{"first", "changed"} {
		fakeProc(t, proc, 7, "x", 100, want)
		who, err := table.Identity(7)
		assert.Check(t, err == nil && who.Cmdline == want, "got %+v, %v; want %q", who, err, want)
	}
	fakeProc(t, proc, 7, "x", 100, "") // a zombie has no command line
	who, err := table.Identity(7)
	assert.Check(t, err == nil && who.Cmdline == "changed", "got %+v, %v", who, err)
}

func TestIdentityOfStuckProcess(t *testing.T) {
	proc := t.TempDir()
	fakeProc(t, proc, 7, "x", 100, "never read")
	fifo := filepath.Join(proc, "7", "cmdline")
	assert.NilError(t, os.Remove(fifo))
	assert.NilError(t, syscall.Mkfifo(fifo, 0o600)) // opening it waits for a writer
	table := New(&Options{Proc: proc, Timeout: 500 * time.Millisecond})
	for range 2 * concurrent { // more than may hang
		who, err := table.Identity(7)
		assert.Assert(t, err == nil && who == (Identity{Cgroup: "/some/path", Container: hex64, V1Cgroups: V1Cgroups{MemoryCgroup: "/docker/" + hex64}}), "got %+v, %v", who, err)
	}
	n := table.Timeouts()
	assert.Check(t, n == 2*concurrent && table.gate.Stuck() == 1,
		"got %d timeouts, %d stuck", n, table.gate.Stuck())
	letGo(t, table, fifo)
}

// letGo ends the reading of a pipe that nobody writes to.
func letGo(t *testing.T, table *Table, fifo string) {
	t.Helper()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	assert.NilError(t, err)
	w.Close()
	for table.gate.Stuck() != 0 {
		time.Sleep(time.Millisecond)
	}
}

func TestIdentitiesAreBounded(t *testing.T) {
	proc := t.TempDir()
	table := New(&Options{Proc: proc, MaxEntries: 8})
	for pid := 1; pid <= 50; pid++ {
		fakeProc(t, proc, pid, "x", pid, "x")
		_, err := table.Identity(pid)
		assert.NilError(t, err)
		n := table.identities.Size()
		assert.Assert(t, n <= 8, "%d entries", n)
	}
}

func TestIdentityConcurrent(t *testing.T) {
	table := New(&Options{TTL: time.Nanosecond, Timeout: time.Minute})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				who, err := table.Identity(os.Getpid())
				assert.Check(t, err == nil && who.Cmdline != "", "got %+v, %v", who, err)
			}
		})
	}
	wg.Wait()
}

func TestCmdline(t *testing.T) {
	long := strings.Repeat("é", maxCmdline)
	for text, want := range map[string]string{
		"":                              "",
		"a\x00b c\x00\x00":              "a b c",
		"postgres: writer   \x00\x00":   "postgres: writer",
		"x\x1b[2J\n\ty\xff\x00":         "x?[2J??y?",
		"ok\u202egnp.exe\x00":           "ok?gnp.exe",
		strings.Repeat("a", maxCmdline): strings.Repeat("a", maxCmdline),
		long:                            strings.Repeat("é", (maxCmdline-3)/2) + "…",
	} {
		got := CommandLine([]byte(text))
		assert.Check(t, got == want, "%.40q: got %.60q (%d bytes), want %.60q", text, got, len(got), want)
		assert.Check(t, len(got) <= maxCmdline && utf8.ValidString(got), "%.40q: %d bytes", text, len(got))
	}
}

func TestParseStat(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	assert.NilError(t, err)
	l, err := parseStat(text)
	assert.Check(t, err == nil && l.start != 0 && l.comm != "", "got %+v, %v", l, err)
	for _, bad := range []string{"", "1 (x", "1 )x(", "1 (x) S 1 2", "1 (x) S" + strings.Repeat(" z", 30)} {
		_, err := parseStat([]byte(bad))
		assert.Check(t, err != nil, "%q: no error", bad)
	}
}

func FuzzProc(f *testing.F) {
	f.Add([]byte("1 (a b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"))
	f.Add([]byte("0::/a/docker-x.scope\n1:name=systemd:/\n"))
	f.Add([]byte("41 31 0:38 / /sys/fs/cgroup\\040x rw - cgroup2 cgroup rw\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = parseStat(text)
		v2, v1 := parseCgroups(text)
		for _, path := range append(v1, v2) {
			_ = ContainerID(path)
		}
		got := CommandLine(text)
		assert.Check(t, len(got) <= maxCmdline && utf8.ValidString(got) && !strings.ContainsAny(got, "\n\x1b\x00"),
			"got %q", got)
		_, err := cgroup2Points(bytes.NewReader(text))
		assert.Check(t, err)
	})
}
