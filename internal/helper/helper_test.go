package helper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/process"
	support "github.com/tailcam/tailcam/test/support/child"
)

// The test program is its own helper.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: reading about processes of other users needs CAP_SYS_PTRACE")
	}
}

func newHelper(t *testing.T, o Options) *Helper {
	t.Helper()
	needRoot(t)
	if testing.Short() {
		t.Skip("the race detector takes more memory than a helper may have")
	}
	o.Log = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	h, err := New(&o)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, h.Close()) })
	eventually(t, "the helpers run", func() bool { return len(h.Stats().PIDs) == 5 })
	return h
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		assert.Assert(t, !time.Now().After(end), "not in time: %s", what)
	}
}

// build compiles a program of testdata where every user may run it.
func build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tailcam-helper-")
	assert.NilError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	assert.NilError(t, os.Chmod(dir, 0o755))
	out := filepath.Join(dir, name)
	support.Compile(t, "gcc", append([]string{"-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o", out,
		"testdata/" + name + ".c"}, flags...)...)
	return out
}

// target is a running program that has printed where it is.
type target struct {
	pid        int
	ip, sp, fp uint64
}

// thread is what the kernel side would say of it, as far as the program knows.
func (p *target) thread(t testing.TB) *Thread {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	assert.NilError(t, err)
	began, err := process.StartTime(stat)
	assert.NilError(t, err)
	regs := make([]uint64, 14)
	regs[0], regs[1] = p.ip, p.sp
	regs[map[string]int{"amd64": 6, "arm64": 12}[runtime.GOARCH]] = p.fp
	return &Thread{PID: p.pid, TID: p.pid, Start: began, Registers: regs}
}

// start runs a program of testdata as some user until the end of the test.
func start(t testing.TB, uid int, args ...string) *target {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	p := &target{}
	_, err := fmt.Fscanf(support.Talk(t, cmd).Out, "%d %v %v %v\n", &p.pid, &p.ip, &p.sp, &p.fp)
	assert.NilError(t, err, "%v", args)
	return p
}

func TestNamesAndLines(t *testing.T) {
	h := newHelper(t, Options{})
	p := start(t, 1000, build(t, "deep"))
	stack := h.UserStack(p.thread(t))
	addrs := stack.Addrs
	assert.Assert(t, len(addrs) >= 5 && stack.Missing == "", "got %#x, %s", addrs, stack.Missing)
	var frames []string
	eventually(t, "lines are known", func() bool {
		s := h.User(p.pid, addrs)
		frames = s.Frames
		return len(s.Sources) == len(addrs) && strings.HasSuffix(s.Sources[1].File, "deep.c")
	})
	assert.Check(t, strings.HasPrefix(frames[0], "here+0x") && strings.HasPrefix(frames[1], "deep+0x") &&
		strings.HasSuffix(frames[1], " (deep)"), "got %q", frames)
	line, err := h.Cmdline(p.pid, 0)
	assert.Check(t, err == nil && strings.HasSuffix(line, "/deep"), "got %q, %v", line, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	assert.NilError(t, err)
	began, err := process.StartTime(stat)
	assert.NilError(t, err)
	long := exec.Command("sleep", append([]string{"60"}, slices.Repeat([]string{"0.0001"}, 200)...)...)
	assert.NilError(t, long.Start())
	defer func() { _ = long.Process.Kill(); _ = long.Wait() }()
	eventually(t, "the long one has its arguments", func() bool { // the kernel sets them a moment after Start has returned
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", long.Process.Pid))
		return len(text) > 0
	})
	it, other := process.Started{PID: p.pid, Start: began}, process.Started{PID: p.pid, Start: began + 1}
	lines := h.Cmdlines([]process.Started{it, other, {PID: long.Process.Pid}})
	if line, ok := lines[other]; !strings.HasSuffix(lines[it], "/deep") || !ok || line != "" || len(lines) != 2 {
		t.Errorf("got %v", lines) // what is long must be asked for alone
	}
	s := h.Stats()
	assert.Check(t, s.Killed == 0 && s.Refused == 0, "got %+v", s)
}

func field(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return ""
}

func four(id int) string { return strings.Repeat(fmt.Sprintf("\t%d", id), 4)[1:] }

// What the helpers have, and have not.
func TestConfined(t *testing.T) {
	h := newHelper(t, Options{})
	parsers := 0
	for _, l := range []*lane{h.full, h.names, h.reader} {
		for _, c := range l.current().children {
			pid := c.proc.Pid
			// An opener takes no orders before, but need not be ready when its parser is.
			eventually(t, "it is confined", func() bool { return field(t, pid, "Seccomp") == "2" })
			for name, want := range map[string]string{
				"Seccomp": "2", "NoNewPrivs": "1", "CapBnd": "", "Uid": four(h.starter.uid), "Gid": four(h.starter.gid), "Groups": "",
			} {
				got := field(t, pid, name)
				assert.Check(t, want == "" || got == want, "%s: %s is %q, want %q", c.role, name, got, want)
			}
			caps := field(t, pid, "CapPrm")
			if c.role == roleParse {
				parsers++
				assert.Check(t, caps == "0000000000000000", "a parser has the capabilities %s", caps)
			} else if caps != "0000010000080004" && caps != "0000010000080006" {
				t.Errorf("%s has the capabilities %s", c.role, caps)
			}
			dir := fmt.Sprintf("/proc/%d/fd", pid)
			list, err := os.ReadDir(dir)
			assert.NilError(t, err)
			for _, fd := range list {
				to, _ := os.Readlink(filepath.Join(dir, fd.Name()))
				switch {
				case to == "/dev/null", strings.HasPrefix(to, "pipe:"), strings.HasPrefix(to, "socket:"), to == "anon_inode:[eventpoll]", to == "anon_inode:[eventfd]":
				case c.role != roleParse && (strings.HasSuffix(to, "/mountinfo")):
				default:
					t.Errorf("%s has %s open", c.role, to)
				}
			}
		}
	}
	assert.Check(t, parsers == 2, "%d parsers", parsers)
}

// Helpers may be killed or stopped at any time: names go on.
func TestKilledAtRandom(t *testing.T) {
	h := newHelper(t, Options{})
	path := build(t, "deep")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGKILL, syscall.SIGSEGV} {
		p := start(t, 1000, path)
		for _, pid := range h.Stats().PIDs {
			_ = syscall.Kill(pid, sig)
		}
		eventually(t, fmt.Sprintf("names after %v", sig), func() bool {
			return strings.HasPrefix(h.User(p.pid, []uint64{p.ip}).Frames[0], "here+0x")
		})
		eventually(t, fmt.Sprintf("memory after %v", sig), func() bool {
			return len(h.UserStack(p.thread(t)).Addrs) > 3
		})
	}
	assert.Check(t, h.Stats().Killed != 0, "none was counted")
}
