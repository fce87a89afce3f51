package guest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// Whose calls a rule is for.
const (
	mine  = iota // of this process
	named        // of threads that these tests name
	all
)

// everyCall reports each of these calls.
func everyCall(t *testing.T, attach rules.Attach, whose int, names ...string) rules.Rule {
	t.Helper()
	r := rules.Rule{Name: "calls", Track: rules.Syscall, Attach: attach, Threshold: 1, Stacks: []rules.Stack{rules.KernelStack, rules.UserStack}}
	for _, name := range names {
		if nr, ok := rules.SyscallNumber(name); ok { // arm64 has fewer
			r.When.Syscall = append(r.When.Syscall, nr)
		}
	}
	switch whose {
	case mine:
		r.When.PID = []uint32{uint32(os.Getpid())}
	case named:
		r.When.Comm = []string{"sleeper", "cloner", "tailcam"}
	}
	return r
}

// TestSyscallWays makes system calls end in every way that they can, and expects
// the same outliers, each once, whether their functions are attached to or all
// system calls are; and that nothing is left pending.
func TestSyscallWays(t *testing.T) {
	inGuest(t)
	ways := []rules.Attach{rules.AttachFunction, rules.AttachAll}
	if canTrace() != nil {
		ways = ways[1:]
	}
	for _, c := range []struct {
		name  string
		whose int
		calls []string
		make  func(t *testing.T)
		want  map[string]int // beside them, the runtime makes some of its own
	}{
		{"plain", mine, []string{"getppid", "openat", "connect", "mprotect", "fstat"}, plainCalls, map[string]int{
			"getppid = 1": 100, "openat = -2": 100, "connect = -9": 100, "mprotect = -22": 100, "fstat = -9": 100}},
		{"pipe", mine, []string{"read"}, slowRead, map[string]int{"read = 1": 1}},
		{"processes", all, []string{"execve", "vfork", "wait4", "exit_group"}, processes, map[string]int{
			"execve = 0": 7, "execve = -2": 1, "exit_group = 0": 0}},
		{"clone", named, []string{"clone", "clone3"}, clones, map[string]int{"clone > 1": 20}},
		{"restarted", named, []string{"clock_nanosleep", "restart_syscall"}, restarted, map[string]int{
			"clock_nanosleep = -516": 1, "restart_syscall = 0": 1}},
		{"filtered", mine, []string{"getppid", "getpgid"}, filtered, map[string]int{"getpgid > 1": 100, "getppid = -13": 0}},
		{"traced", named, []string{"execve"}, traced, map[string]int{"execve = 0": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, way := range ways {
				var got map[string]int
				for range 3 { // where tasks are preempted in programs, the kernel keeps others out of those, and counts it
					var skipped uint64
					got, skipped = countCalls(t, []rules.Rule{everyCall(t, way, c.whose, c.calls...)}, c.want, func(*tracker.Tracker) { c.make(t) })
					if skipped == 0 || maps.Equal(got, c.want) {
						break
					}
				}
				assert.Check(t, is.DeepEqual(got, c.want), "%s", way)
			}
		})
	}
}

// countCalls returns how often each call that is wanted was reported, by what it
// returned, and how many of their ends the kernel kept from the programs.
func countCalls(t *testing.T, list []rules.Rule, want map[string]int, do func(*tracker.Tracker)) (counted map[string]int, skipped uint64) {
	t.Helper()
	kernel, err := tracker.New(list, &tracker.Options{TrackSelf: true, Buffer: 32 << 20, NoHistograms: true})
	assert.NilError(t, err)
	defer func() { assert.Check(t, kernel.Close()) }()
	assert.Assert(t, len(kernel.Inactive()) == 0, "not on this kernel: %v", kernel.Inactive())
	attach(t, kernel)
	for _, p := range kernel.Programs() {
		all := strings.HasPrefix(p[1], "tp_btf:sys_")
		assert.Check(t, !all || list[0].Attach == rules.AttachAll, "attached to %s", p[1])
	}
	outliers := collect(t, kernel)
	do(kernel)
	rest := map[string]int{}
	counted = map[string]int{}
	for call := range want {
		counted[call] = 0
	}
	for end := time.After(3 * time.Second); end != nil; {
		select {
		case o := <-outliers:
			what := callOf(t, o)
			if _, ok := want[what]; ok {
				counted[what]++
			} else {
				rest[what]++
			}
		case <-end:
			end = nil
		}
	}
	c, err := kernel.Counters()
	assert.NilError(t, err)
	k := c.Trackers[rules.Syscall]
	assert.Check(t, k.TableFull == 0 && k.Replaced <= c.Missed["sys_exit"], "lost: %+v", k)
	for name, of := range c.Rules {
		assert.Check(t, of.RingFull == 0, "lost of rule %s: %+v", name, of)
	}
	t.Logf("%s: %v, others %v, skipped by the kernel: %v", list[0].Attach, counted, rest, c.Missed)
	keys, err := kernel.PendingKeys(rules.Syscall)
	assert.Check(t, err)
	assert.Check(t, len(keys) == 0, "threads %v are in a call", keys)
	return counted, c.Missed["call_entry"] + c.Missed["sys_enter"] + c.Missed["sys_exit"]
}

func callOf(t *testing.T, o *events.Outlier) string {
	t.Helper()
	assert.Assert(t, o.Syscall != nil && o.Syscall.Ret != nil, "%+v", o)
	assert.Check(t, len(o.Raw.Kernel) > 0, "no kernel stack")
	if *o.Syscall.Ret > 1 {
		return o.Syscall.Label() + " > 1"
	}
	return fmt.Sprintf("%s = %d", o.Syscall.Label(), *o.Syscall.Ret)
}

const often = 100

func plainCalls(t *testing.T) {
	t.Helper()
	name, err := unix.BytePtrFromString("/none")
	assert.NilError(t, err)
	for range often {
		unix.Getppid()
		_, _, _ = unix.RawSyscall6(unix.SYS_OPENAT, 0, uintptr(unsafe.Pointer(name)), unix.O_RDONLY, 0, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, ^uintptr(0), 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_MPROTECT, 1, 1, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_FSTAT, ^uintptr(0), 0, 0)
	}
}

func slowRead(t *testing.T) {
	t.Helper()
	var p [2]int
	assert.NilError(t, unix.Pipe(p[:]))
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	time.AfterFunc(50*time.Millisecond, func() { _, _ = unix.Write(p[1], []byte("x")) })
	_, err := unix.Read(p[0], make([]byte, 1))
	assert.NilError(t, err)
}

// processes start, fail to start, are replaced by one of their threads, and end.
func processes(t *testing.T) {
	t.Helper()
	for range 5 {
		cmd := exec.Command("/bin/tailcam", "version")
		cmd.Env = []string{"PATH=/bin"}
		assert.NilError(t, cmd.Run())
	}
	assert.ErrorContains(t, exec.Command("/bin/none").Run(), "no such file")
	// A thread that is not the first becomes the process: its id changes in the call.
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{executorEnv + "=1"}
	assert.NilError(t, cmd.Run())
}

// executorEnv makes this program become another one from a thread of its own.
const executorEnv = "TAILCAM_EXECUTOR"

func executor() {
	go func() {
		runtime.LockOSThread()
		_ = unix.Exec("/bin/tailcam", []string{"tailcam", "version"}, nil)
		os.Exit(1)
	}()
	select {}
}

// clones make processes, in each of which the call returns, too.
func clones(t *testing.T) {
	t.Helper()
	started := make(chan error)
	go func() {
		_, _ = os.StartProcess("/bin/none", nil, &os.ProcAttr{}) // the first one tries what the kernel has
		nameThread("cloner")
		for range 20 {
			_, err := os.StartProcess("/bin/none", nil, &os.ProcAttr{})
			started <- err
		}
	}()
	for range 20 {
		assert.ErrorContains(t, <-started, "no such file")
	}
}

// restarted interrupts a sleep by stopping its process: the kernel begins it again
// as another call.
func restarted(t *testing.T) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{sleeperEnv + "=1", "GODEBUG=asyncpreemptoff=1"} // no other signals
	assert.NilError(t, cmd.Start())
	time.Sleep(time.Second)
	assert.NilError(t, cmd.Process.Signal(unix.SIGSTOP))
	time.Sleep(200 * time.Millisecond)
	assert.NilError(t, cmd.Process.Signal(unix.SIGCONT))
	assert.NilError(t, cmd.Wait())
}

// sleeperEnv makes this program sleep for three seconds, in one call.
const sleeperEnv = "TAILCAM_SLEEPER"

// nameThread gives this goroutine a thread of its own, for good.
func nameThread(name string) {
	runtime.LockOSThread()
	b := append([]byte(name), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

func sleeper() {
	nameThread("sleeper")
	ts := unix.NsecToTimespec((3 * time.Second).Nanoseconds())
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// filtered makes a call that seccomp denies, in a thread that ends with it.
func filtered(t *testing.T) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		done <- denyGetppid()
	}()
	assert.NilError(t, <-done)
}

// denyGetppid has seccomp deny getppid in this thread, for good, and calls it.
func denyGetppid() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPPID, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	for range often {
		if _, _, errno := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); errno != unix.EACCES {
			return fmt.Errorf("getppid is not denied: %w", errno)
		}
		_, _, _ = unix.RawSyscall(unix.SYS_GETPGID, 0, 0, 0)
	}
	return nil
}

// traced runs a program that stops at both ends of each of its calls.
func traced(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/bin/tailcam", "version")
	cmd.Env, cmd.SysProcAttr = []string{"GOMAXPROCS=1"}, &unix.SysProcAttr{Ptrace: true}
	assert.NilError(t, cmd.Start())
	var status unix.WaitStatus
	for range 200 {
		_, err := unix.Wait4(cmd.Process.Pid, &status, 0, nil)
		assert.NilError(t, err)
		if status.Exited() {
			return
		}
		assert.NilError(t, unix.PtraceSyscall(cmd.Process.Pid, 0))
	}
	assert.NilError(t, cmd.Process.Kill())
	_, _ = unix.Wait4(cmd.Process.Pid, &status, 0, nil)
}

// TestSyscallReload: rules that name more calls attach to more functions while the
// others run on. Being on every call needs a restart.
func TestSyscallReload(t *testing.T) {
	inGuest(t)
	needFunctions(t)
	few := []rules.Rule{everyCall(t, rules.AttachAuto, mine, "getpgid")}
	more := []rules.Rule{everyCall(t, rules.AttachAuto, mine, "getpgid", "getppid")}
	kernel, outliers := watch(t, few, &tracker.Options{TrackSelf: true})
	assert.NilError(t, kernel.Swap(more))
	status := kernel.CallFunctions()
	assert.Check(t, status.Functions == 2 && status.Attached == 1, "%+v", status)
	kernel.AttachCalls(t.Context())
	unix.Getppid()
	o := await(t, outliers, "calls", 0)
	assert.Check(t, is.Equal(o.Syscall.Name, "getppid"))

	var calls []string
	for nr := range 200 {
		calls = append(calls, rules.SyscallName(nr))
	}
	assert.NilError(t, kernel.Swap([]rules.Rule{everyCall(t, rules.AttachAuto, mine, calls...)}))
	assert.ErrorContains(t, kernel.Inactive()["calls"], "at most 128 functions are attached to")

	// With attach: all, the functions are left alone.
	assert.NilError(t, kernel.Swap([]rules.Rule{everyCall(t, rules.AttachAll, mine, "getuid")}))
	for o.Syscall.Name != "getuid" { // what is attached to every call was priced by calls of this process, more than the ring holds
		assert.Check(t, is.Equal(o.Syscall.Name, "getppid"))
		unix.Getuid()
		o = await(t, outliers, "calls", 0)
	}
}
