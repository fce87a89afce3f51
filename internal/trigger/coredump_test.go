package trigger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/child"
)

// deaths watches for core dumps until the end of the test.
func deaths(t *testing.T, spec *rules.CoredumpSource) (next func(pid int) *Event) {
	t.Helper()
	s, err := openCoredump(spec, func(uint64) (string, error) { return "/here", nil }, func(uint64) { t.Error("lost") })
	assert.NilError(t, err)
	fired := make(chan *Event, 1000)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- s.watch(ctx, func(ev *Event) { fired <- ev }) }()
	t.Cleanup(func() {
		stop()
		assert.Check(t, <-ended)
		s.close()
	})
	return func(pid int) *Event {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case ev := <-fired:
				if ev.Task.PID == pid {
					return ev
				}
				if children[ev.Task.PID] {
					t.Errorf("%d was told, too: %+v", ev.Task.PID, ev)
				}
			case <-end:
				t.Fatalf("the death of %d is not told", pid)
			}
		}
	}
}

// children are the programs of tests, which are alone with one kernel.
var children = map[int]bool{}

// dying is a program that ends as it is told.
type dying struct {
	program, dir string
}

// run runs the program, kills it if that is how it ends, and returns what wait(2) tells.
func (d dying) run(t *testing.T, limit, how string) (pid int, status syscall.WaitStatus) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "ulimit -c "+limit+" && exec ./die "+how)
	cmd.Dir = d.dir
	assert.NilError(t, cmd.Start())
	if how == "killed" {
		for exe := ""; exe != d.program; exe, _ = os.Readlink("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe") {
			time.Sleep(time.Millisecond)
		}
		assert.NilError(t, cmd.Process.Signal(unix.SIGQUIT))
	}
	err := cmd.Wait()
	children[cmd.Process.Pid] = true
	var exit *exec.ExitError
	assert.Assert(t, err == nil || errors.As(err, &exit), "%v", err)
	return cmd.Process.Pid, cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestCoredump: programs that end by abort, a fault, a signal and in another thread are
// told with the signal and when it came, if the kernel dumped core of them. Those that
// catch or ignore it, and those that must not be dumped, are not.
func TestCoredump(t *testing.T) {
	needRoot(t)
	d := dying{dir: t.TempDir()}
	d.program = filepath.Join(d.dir, "die")
	child.Compile(t, "gcc", "-O1", "-pthread", "-o", d.program, "testdata/die.c")
	_, status := d.run(t, "unlimited", "abort")
	assert.Assert(t, status.CoreDump(), "kernel.core_pattern of this machine dumps no core where this test runs")
	next := deaths(t, &rules.CoredumpSource{})
	for _, c := range []struct {
		how, comm, reason string
		signal            syscall.Signal
	}{
		{"abort", "die", "SIGABRT, core dumped in ", syscall.SIGABRT},
		{"fault", "die", "SIGSEGV at address 0x10, core dumped in ", syscall.SIGSEGV},
		{"passed-on", "die", "SIGSEGV at address 0x10, core dumped in ", syscall.SIGSEGV},
		{"thread", "faulty", "SIGSEGV at address 0x10, core dumped in ", syscall.SIGSEGV},
		{"killed", "die", "SIGQUIT sent by process " + strconv.Itoa(unix.Getpid()) + ", core dumped in ", syscall.SIGQUIT},
	} {
		quiet := []string{"caught", "undumpable", "ignored"}
		for _, how := range quiet {
			_, status := d.run(t, "unlimited", how)
			assert.Check(t, !status.CoreDump(), how)
		}
		if unlimited, status := d.run(t, "0", "fault"); status.CoreDump() {
			next(unlimited) // core_pattern is a pipe, which RLIMIT_CORE does not limit
		}
		before := linux.Monotonic()
		pid, status := d.run(t, "unlimited", c.how)
		assert.Check(t, status.CoreDump() && status.Signal() == c.signal, "%s: %v", c.how, status)
		ev := next(pid)
		task := *ev.Task
		assert.Check(t, strings.HasPrefix(ev.Reason, c.reason), "%s: %q", c.how, ev.Reason)
		assert.Check(t, ev.End > before && ev.End < linux.Monotonic() && ev.Time == 0, "%+v", ev)
		assert.Check(t, task.Comm == c.comm && task.Past && task.Cgroup == "/here" && task.Cmdline == "./die "+c.how, "%+v", task)
		assert.Check(t, (task.TID != task.PID) == (c.how == "thread"), "%+v", task)
	}
}

// TestUndumped: on request, also those of which no core is written; of some signals and
// programs alone.
func TestUndumped(t *testing.T) {
	needRoot(t)
	d := dying{dir: t.TempDir()}
	d.program = filepath.Join(d.dir, "die")
	child.Compile(t, "gcc", "-O1", "-pthread", "-o", d.program, "testdata/die.c")
	next := deaths(t, &rules.CoredumpSource{Undumped: true, Signals: []string{"SIGABRT"}, Comm: []string{"di*"}})
	for range 3 {
		d.run(t, "0", "fault")
		pid, status := d.run(t, "0", "undumpable")
		assert.Check(t, !status.CoreDump() && status.Signal() == syscall.SIGABRT)
		ev := next(pid)
		assert.Check(t, ev.Reason == "SIGABRT, no core dumped", "%q", ev.Reason)
	}
}

// TestHostileDeaths: whatever the kernel side may tell has a text.
func TestHostileDeaths(t *testing.T) {
	c := &coredump{spec: &rules.CoredumpSource{Undumped: true}, path: func(uint64) (string, error) { return "", errors.ErrUnsupported }}
	dead := abi.Death{Status: 11, Code: 1, ArgsBytes: 1 << 31, SignalNs: 9, ExitNs: 3}
	for i := range dead.Comm {
		dead.Comm[i] = 0x80 + byte(i)
	}
	for i := range dead.Args {
		dead.Args[i] = byte(i)
	}
	ev := c.event(&dead)
	assert.Check(t, ev != nil && strings.HasPrefix(ev.Reason, "SIGSEGV at address 0x0, no core") && !strings.ContainsAny(ev.Task.Cmdline, "\x00\x1b\n"), "%+v %q", ev, ev.Task.Cmdline)
	dead = abi.Death{Status: abi.DeathDumped | 6, ExitNs: 7}
	ev = c.event(&dead)
	assert.Check(t, ev.Reason == "SIGABRT, core dumped" && ev.End == 7, "%+v", ev)
	dead.Status = 0x7f
	assert.Check(t, c.event(&dead) != nil, "no signal that has a name")
}
