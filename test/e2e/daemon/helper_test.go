package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/tracker/events"
)

// children are the processes that a process has started, and that run.
func children(t *testing.T, pid int) (list []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	assert.NilError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil {
			list = append(list, strings.Fields(string(text))...)
		}
	}
	return list
}

// TestKilledWhileFilesHang: a daemon whose helpers hang on a file system that
// does not answer hangs nowhere itself, ends at once when it is killed, holds
// nothing any more, and the next one starts in its place.
func TestKilledWhileFilesHang(t *testing.T) {
	needRoot(t)
	fs, uid, one := stuckNapper(t)
	other := newUID()
	one()
	h := newHome(t, rulesFile(
		entry("napper", "syscall", "10ms", fmt.Sprintf("{uid: %d, syscall: clock_nanosleep}", uid), "stacks: [user]", "snapshot: false"),
		napRule("nap", other, "stacks: [user]", "snapshot: false")))
	d := h.start(t)
	fs.Hang()
	for range 3 {
		one()
	}
	eventually(t, "its naps are told", func() bool { return len(d.events("napper")) >= 3 })
	naps(t, other, 10, 20*time.Millisecond, 2)
	named := func(o *events.Outlier) bool {
		return len(o.Stacks.User) > 0 && !strings.HasPrefix(o.Stacks.User[0], "[unknown]")
	}
	eventually(t, "another's naps are told", func() bool { return len(d.events("nap")) >= 10 })
	for _, o := range d.events("nap") {
		assert.Check(t, named(&o), "while the file system hangs, another's stack is %q", o.Stacks.User)
	}
	n := inD(d.pid())
	assert.Check(t, n <= 0, "%d threads of the daemon hang in the kernel", n)
	helpers := children(t, d.pid())
	assert.Check(t, len(helpers) >= 5, "the daemon has only %d helpers", len(helpers))
	d.stop(syscall.SIGKILL) // holds that no program and no lock stays
	begin := time.Now()
	next := h.start(t)
	t.Logf("the next daemon watches after %v", time.Since(begin))
	next.stop(syscall.SIGTERM)
	fs.Answer()
	for _, pid := range helpers {
		eventually(t, "helper "+pid+" has ended", func() bool {
			text, err := os.ReadFile("/proc/" + pid + "/cmdline")
			return err != nil || !strings.Contains(string(text), "helper")
		})
	}
}

// TestHelpersKilled: whatever becomes of helpers, outliers are told, with names
// again once there are helpers.
func TestHelpersKilled(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: [user]", "snapshot: false")))
	told := 0
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGABRT} {
		for _, pid := range children(t, d.pid()) {
			var n int
			if _, err := fmt.Sscan(pid, &n); err == nil {
				_ = syscall.Kill(n, s)
			}
		}
		naps(t, uid, 5, 20*time.Millisecond, 2)
		told += 5
		eventually(t, fmt.Sprintf("naps are told after %v", s), func() bool { return len(d.events("nap")) >= told })
	}
	eventually(t, "a nap has names", func() bool {
		naps(t, uid, 5, 20*time.Millisecond, 2) // the first, at the latest, is named before its process ends
		list := d.events("nap")[told:]
		return slices.ContainsFunc(list, func(o events.Outlier) bool {
			return len(o.Stacks.User) > 0 && !strings.HasPrefix(o.Stacks.User[0], "[unknown]")
		})
	})
	assert.Check(t, d.status().loss("helper_killed", "") != 0, "status tells of no helper that was killed")
}

// TestHelpersAreNotReported: helpers sleep and wake as all programs do, which nobody is told.
func TestHelpersAreNotReported(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(entry("helpers", "offcpu", "1ms", "{comm: exe, state: [interruptible, uninterruptible]}", "snapshot: false"),
		napRule("nap", uid, "stacks: [kernel, user]")))
	helpers := children(t, d.pid())
	for _, pid := range helpers {
		comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		assert.Check(t, err == nil && string(comm) == "exe\n", "%s is %q, %v", pid, comm, err)
	}
	for range 5 { // each wakes a helper, to read its stack
		naps(t, uid, 1, 10*time.Millisecond, 1)
		time.Sleep(50 * time.Millisecond)
	}
	eventually(t, "outliers are told", func() bool { return len(d.events("nap")) == 5 })

	sleep, err := exec.LookPath("sleep")
	assert.NilError(t, err)
	other := filepath.Join(t.TempDir(), "exe") // another program of that name
	assert.NilError(t, os.Link(sleep, other))
	cmd := exec.CommandContext(t.Context(), other, "0.05")
	assert.NilError(t, cmd.Run())
	eventually(t, "the other program is told of", func() bool {
		return slices.ContainsFunc(d.events("helpers"), func(o events.Outlier) bool { return o.Task.PID == cmd.Process.Pid })
	})
	helpers = append(helpers, children(t, d.pid())...)
	for _, o := range d.events("helpers") {
		assert.Check(t, !slices.Contains(helpers, strconv.Itoa(o.Task.PID)), "a helper is reported: %+v", o)
	}
}

// TestLazyTimers: no thread of the daemon or a helper has the timers of programs in a hurry, with
// which the runtime of Go wakes each of them every 70 µs while there is work.
func TestLazyTimers(t *testing.T) {
	needRoot(t)
	uid := newUID()
	d := start(t, rulesFile(napRule("nap", uid, "stacks: [kernel, user]")))
	naps(t, uid, 5, 10*time.Millisecond, 1)
	eventually(t, "outliers are told", func() bool { return len(d.events("nap")) == 5 })
	helpers := children(t, d.pid())
	assert.Check(t, len(helpers) > 0)
	for _, pid := range append(helpers, strconv.Itoa(d.pid())) {
		threads, err := os.ReadDir(filepath.Join("/proc", pid, "task"))
		assert.NilError(t, err)
		for _, thread := range threads {
			slack, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
			if os.IsNotExist(err) || errors.Is(err, syscall.ESRCH) {
				continue // it has ended
			}
			assert.Check(t, err == nil && string(slack) == strconv.Itoa(int(linux.LazySlack))+"\n", "thread %s of %s: %q, %v", thread.Name(), pid, slack, err)
		}
	}
}
