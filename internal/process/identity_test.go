package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/child"
)

// Who began after the task was seen is not it.
func TestIdentityOfWhoBeganLater(t *testing.T) {
	before := linux.Monotonic() - uint64(5*tick)
	cmd := sleeper(t, "-u", "-")
	pid := cmd.Process.Pid
	table := New(&Options{TTL: time.Hour, Timeout: time.Minute})
	who, err := table.IdentityOf(Seen{PID: pid, At: before})
	assert.Check(t, is.ErrorIs(err, fs.ErrNotExist), "began later: got %+v", who)
	for {
		who, err := table.IdentityOf(Seen{PID: pid, At: linux.Monotonic()})
		assert.NilError(t, err)
		if who.Cmdline != "" { // not in the middle of exec
			break
		}
	}
	if who, err := table.IdentityOf(Seen{PID: pid, At: before}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("began later, and is remembered: got %+v, %v", who, err)
	}
	// What is remembered of one that has ended is for what was seen of it then.
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	later := linux.Monotonic() + uint64(time.Second)
	for name, test := range map[string]struct {
		seen Seen
		good bool
	}{
		"while it was there":                   {Seen{PID: pid, At: linux.Monotonic() - uint64(time.Minute)}, false},
		"by its name":                          {Seen{PID: pid, At: later, Comm: "cat"}, true},
		"later, under another name":            {Seen{PID: pid, At: later, Comm: "dog"}, false},
		"now":                                  {Seen{PID: pid}, true},
		"before it was seen to be there, last": {Seen{PID: pid, At: linux.Monotonic(), Comm: "cat"}, true},
	} {
		who, err := table.IdentityOf(test.seen)
		assert.Check(t, (err == nil) == test.good && (err != nil || who.Cmdline == "cat -u -"),
			"%s: got %+v, %v", name, who, err)
	}
}

// A zombie has left its cgroup (of version 1) and has no command line.
func TestIdentityOfZombie(t *testing.T) {
	cmd := exec.Command("true")
	assert.NilError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	table := New(&Options{Timeout: time.Minute})
	untilExiting(t, cmd.Process.Pid)
	if who, err := table.Identity(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("never seen alive: got %+v, %v", who, err)
	}
	tasks := table.Tasks([]int{cmd.Process.Pid}, time.Minute)
	if len(tasks) == 1 && (tasks[0].Cgroup != "" || tasks[0].Cmdline != "" || tasks[0].CPUCgroup != "" || tasks[0].MemoryCgroup != "") {
		t.Errorf("got %+v", tasks[0])
	}
	live := sleeper(t, "-u")
	who := alive(t, table, live.Process.Pid)
	assert.NilError(t, live.Process.Kill())
	for range 1000 {
		again, err := table.Identity(live.Process.Pid)
		assert.Assert(t, err == nil && again == who,
			"a zombie that was seen alive: got %+v, %v; want %+v", again, err, who)
	}
}

// untilExiting waits until the first thread of a process ends.
func untilExiting(t *testing.T, pid int) {
	t.Helper()
	for exiting := false; !exiting; runtime.Gosched() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		assert.NilError(t, err)
		now, err := parseStat(text)
		assert.NilError(t, err)
		exiting = now.exiting
	}
}

// alive is the identity of a process once it has a command line.
func alive(t *testing.T, table *Table, pid int) Identity {
	t.Helper()
	for {
		who, err := table.Identity(pid)
		assert.NilError(t, err)
		if who.Cmdline != "" {
			return who
		}
		runtime.Gosched()
	}
}

// run starts a program of testdata, and returns what it writes first.
func run(t *testing.T, name string, args ...string) (cmd *exec.Cmd, line string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	child.Compile(t, "gcc", "-O1", "-pthread", "-o", path, "testdata/"+name+".c")
	cmd = exec.Command(path, args...)
	return cmd, child.Talk(t, cmd).Line()
}

// The first thread of a process may end before the others.
func TestIdentityWithoutFirstThread(t *testing.T) {
	cmd, line := run(t, "leaderless")
	tid, err := strconv.Atoi(line)
	assert.NilError(t, err)
	pid := cmd.Process.Pid
	untilExiting(t, pid)
	own, err := os.ReadFile("/proc/self/cgroup")
	assert.NilError(t, err)
	cgroup, _ := parseCgroups(own)
	table := New(&Options{Timeout: time.Minute})
	who, err := table.Identity(pid)
	assert.Check(t, err != nil, "by its first thread: got %+v", who)
	for range 2 {
		who, err := table.IdentityOf(Seen{PID: pid, TID: tid, At: linux.Monotonic()})
		assert.Check(t, err == nil && strings.HasSuffix(who.Cmdline, "/leaderless") && who.Cgroup == cgroup,
			"got %+v, %v", who, err)
	}
}

// A process that begins one program after the other has the command line of
// one of them, and never one without its own name.
func TestIdentityDuringExec(t *testing.T) {
	cmd, _ := run(t, "execs")
	table := New(&Options{TTL: time.Nanosecond, Timeout: time.Minute})
	seen := map[string]int{}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && (len(seen) < 3 || seen[""] == 0); {
		who, err := table.Identity(cmd.Process.Pid)
		assert.NilError(t, err)
		seen[who.Cmdline]++
	}
	for line := range seen {
		assert.Check(t, line == "" || line == "one 1" || line == "two 2" || strings.HasSuffix(line, "/execs"),
			"got command line %q", line)
	}
}

// Processes that come and go under the same few pids, faster than anybody
// looks: each is known by its own command line, or not at all.
func TestReusedPIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: chooses the next pid in a namespace of its own")
	}
	self, err := os.Executable()
	assert.NilError(t, err)
	cmd := exec.Command(self, "-test.run=^TestReusedPIDsInside$", "-test.v")
	cmd.Env = append(os.Environ(), "TAILCAM_REUSED_PIDS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := cmd.CombinedOutput()
	assert.Check(t, err == nil && strings.Contains(string(text), "--- PASS: TestReusedPIDsInside"),
		"%v\n%s", err, text)
}

// TestReusedPIDsInside is the first process of a PID namespace.
func TestReusedPIDsInside(t *testing.T) {
	if os.Getenv("TAILCAM_REUSED_PIDS") == "" {
		t.Skip("for TestReusedPIDs, in a namespace")
	}
	proc := t.TempDir()
	for _, err := range []error{
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", proc, "proc", 0, ""),
	} {
		assert.NilError(t, err)
	}
	defer func() { _ = unix.Unmount(proc, unix.MNT_DETACH) }()
	const pid, wanted = 200, 100
	table := New(&Options{Proc: proc, TTL: time.Hour, Timeout: time.Minute})
	reused, wrong, named := 0, 0, 0
	var old uint64 // when the one before was seen
	for i := range wanted {
		assert.NilError(t, os.WriteFile(filepath.Join(proc, "sys/kernel/ns_last_pid"), []byte(strconv.Itoa(pid-1)), 0o600))
		arg := strconv.Itoa(i)
		cmd := &exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "1000", arg}}
		assert.NilError(t, cmd.Start())
		if cmd.Process.Pid == pid {
			if old != 0 {
				reused++
				// What was seen of the one before, who has ended.
				if who, err := table.IdentityOf(Seen{PID: pid, Comm: "gone", At: old}); err == nil && strings.HasSuffix(who.Cmdline, " "+arg) {
					wrong++
				}
			}
			if who, err := table.IdentityOf(Seen{PID: pid, At: linux.Monotonic()}); err == nil && who.Cmdline != "" {
				if named++; !strings.HasSuffix(who.Cmdline, " "+arg) && strings.HasPrefix(who.Cmdline, "sleep") {
					t.Errorf("%s: got %q", arg, who.Cmdline)
				}
			}
			old = linux.Monotonic()
			time.Sleep(2 * tick) // the next begins in another tick
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	assert.Check(t, wrong <= 0, "%d of %d were taken for their predecessor", wrong, reused)
	assert.Check(t, reused >= wanted/4 && named >= wanted/4,
		"the pid was reused only %d times, known %d times", reused, named)
}
