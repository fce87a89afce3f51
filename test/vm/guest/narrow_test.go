package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
)

// narrow is the 32-bit program (test/support/narrow).
const narrow = "/bin/narrow"

// narrowRules are for calls of both tables: of this process, of the thread that the
// 32-bit program sleeps in, and of what begins it and what it becomes.
const narrowRules = `
rules:
  - name: calls
    track: syscall
    attach: %s
    threshold: 1us
    when:
      comm: [%s, sleeper]
      syscall: [nanosleep, clock_nanosleep, restart_syscall, getppid, open, fstat]
    stacks: [kernel]
  - name: execs
    track: syscall
    attach: %[1]s
    threshold: 1us
    when: {comm: [narrow, tailcam], syscall: execve}
    stacks: [kernel]
`

// TestNarrow: calls of 32-bit programs have the names of their own table, whether
// their functions are attached to or all system calls are; those of 64-bit programs
// are all there meanwhile.
func TestNarrow(t *testing.T) {
	inGuest(t)
	comm, err := os.ReadFile("/proc/self/comm")
	assert.NilError(t, err)
	for _, way := range []rules.Attach{rules.AttachFunction, rules.AttachAll} {
		t.Run(string(way), func(t *testing.T) {
			if way == rules.AttachFunction {
				needFunctions(t)
			}
			list, err := rules.Parse("narrow", fmt.Appendf(nil, narrowRules, way, comm[:len(comm)-1]), &rules.LocalMachine{})
			assert.NilError(t, err)
			own, ok := rules.SyscallNumber("nanosleep") // in which the runtime of this process always sleeps
			assert.Assert(t, ok)
			list[0].When.Syscall = slices.DeleteFunc(list[0].When.Syscall, func(nr int) bool { return nr == own })
			mixed, unseen := 0, 0 // calls of 32 bits by this process: all, and those before any 32-bit program was there
			if mixes {
				mixed = often
			}
			if way == rules.AttachAll {
				unseen = mixed
			}
			abi := " (" + rules.SyscallABI(rules.Syscalls32) + ")"
			want := map[string]int{
				"getppid = 1": 2 * often, "getppid" + abi + " = 1": 2 * mixed, "open" + abi + " = -14": mixed + unseen,
				"nanosleep" + abi + " = 0": 1, "clock_nanosleep_time64" + abi + " = 0": 1,
				"nanosleep" + abi + " = -516": 1, "restart_syscall" + abi + " = 0": 1,
				// Which table a call is of, its entry says.
				"execve = 0": 6, "execve" + abi + " = 0": 2, "execve" + abi + " = -2": 1, "execve = -2": 0,
				"fstat = -14": 0, "fstat" + abi + " = -14": 0, "open = -14": 0,
			}
			got, skipped := countCalls(t, list, want, func(kernel *tracker.Tracker) { narrowCalls(t, kernel, way) })
			var fewer uint64
			for call, n := range want {
				fewer += uint64(max(n-got[call], 0))
				got[call] = max(got[call], n)
			}
			assert.Check(t, is.DeepEqual(got, want))
			assert.Check(t, fewer <= skipped, "%d calls are missing, and the kernel has kept %d from the programs", fewer, skipped)
		})
	}
}

func narrowCalls(t *testing.T, kernel *tracker.Tracker, way rules.Attach) {
	t.Helper()
	const open, getppid = 5, 64 // of i386
	mixed := func() {
		for range often {
			unix.Getppid()
			int80(open)
			int80(getppid)
		}
	}
	assert.Check(t, !kernel.CallFunctions().Seen32)
	mixed()
	awaitNarrow(t, kernel, way)
	mixed()
	assert.NilError(t, runNarrow(t, "sleep", "100ms").Wait())
	assert.NilError(t, runNarrow(t, "sleep64", "100ms").Wait())
	assert.NilError(t, runNarrow(t, "exec", "/bin/tailcam", "version").Wait())
	assert.ErrorContains(t, runNarrow(t, "exec", narrow, "exec", "/bin/none").Wait(), "exit status 1")
	cmd := runNarrow(t, "sleep", "3s")
	time.Sleep(time.Second)
	assert.NilError(t, cmd.Process.Signal(unix.SIGSTOP))
	time.Sleep(200 * time.Millisecond)
	assert.NilError(t, cmd.Process.Signal(unix.SIGCONT))
	assert.NilError(t, cmd.Wait())
}

// awaitNarrow runs a 32-bit program, and waits until its calls are attached to.
func awaitNarrow(t *testing.T, kernel *tracker.Tracker, way rules.Attach) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if way != rules.AttachAll {
		done := make(chan struct{})
		defer func() { stop(); <-done }()
		go func() {
			defer close(done)
			kernel.RunCalls(ctx, func(tracker.CallStatus) {})
		}()
	}
	assert.ErrorContains(t, runNarrow(t).Wait(), "exit status 1") // it only asks for arguments
	if way == rules.AttachAll {
		return
	}
	for {
		kernel.LookForNarrow()
		s := kernel.CallFunctions()
		if s.Seen32 && s.Part32.Attached == s.Part32.Functions {
			assert.Check(t, s.Part32.Functions > 0 && s.Attached == s.Functions, "%+v", s)
			return
		}
		assert.Assert(t, s.Err32 == nil && len(s.Part32.Failed) == 0, "%+v", s)
		time.Sleep(50 * time.Millisecond)
	}
}

func runNarrow(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(narrow, args...)
	cmd.Env = []string{"PATH=/bin"}
	assert.NilError(t, cmd.Start())
	return cmd
}

// notBlindly are calls that do harm, or do not return, if all arguments are 0.
var notBlindly = []string{
	"restart_syscall", "exit", "fork", "close", "waitpid", "fchmod", "pause", "ptrace", "kill", "signal", "ssetmask", "sigsuspend", "_newselect",
	"vhangup", "wait4", "sigreturn", "clone", "personality", "rt_sigreturn", "vfork", "exit_group", "set_tid_address", "waitid",
	"pselect6", "ppoll", "unshare", "seccomp", "pselect6_time64", "ppoll_time64", "close_range", "setsid", "dup2", "umask", "read", "write",
}

// makeNarrow makes calls by the table for 32-bit programs.
func makeNarrow(t *testing.T, nrs []int) {
	t.Helper()
	if !mixes {
		args := []string{"calls"}
		for _, nr := range nrs {
			args = append(args, strconv.Itoa(rules.SyscallNR(nr)))
		}
		assert.NilError(t, runNarrow(t, args...).Wait())
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, nr := range nrs {
		int80(uintptr(rules.SyscallNR(nr)))
	}
}

// TestNarrowTable: each function that is attached to for 32-bit programs is the one
// that the kernel's table for them has.
func TestNarrowTable(t *testing.T) {
	inGuest(t)
	needFunctions(t)
	var nrs []int
	for nr := rules.Syscalls32; nr < 2*rules.Syscalls32; nr++ {
		if name := rules.SyscallName(nr); !strings.HasPrefix(name, "syscall_") && !slices.Contains(notBlindly, name) {
			nrs = append(nrs, nr)
		}
	}
	const most = 100 // functions of a rule
	whose := mine
	if !mixes {
		whose = named
	}
	seen := map[rules.Attach][]string{}
	for _, way := range []rules.Attach{rules.AttachAll, rules.AttachFunction} {
		var list []rules.Rule
		for part := range slices.Chunk(nrs, most) {
			r := everyCall(t, way, whose)
			r.Name, r.When.Syscall = fmt.Sprint("calls-", len(list)), part
			list = append(list, r)
		}
		kernel, outliers := watch(t, list, &tracker.Options{TrackSelf: true, Buffer: 32 << 20, NoHistograms: true})
		awaitNarrow(t, kernel, way)
		makeNarrow(t, nrs)
		for end := time.After(3 * time.Second); end != nil; {
			select {
			case o := <-outliers:
				// What this kernel has not has no function either.
				if o.Syscall.Ret != nil && *o.Syscall.Ret != -int64(unix.ENOSYS) && o.Syscall.ABI != "" {
					seen[way] = append(seen[way], o.Syscall.Name)
				}
			case <-end:
				end = nil
			}
		}
		assert.NilError(t, kernel.Stop())
		slices.Sort(seen[way])
		if !mixes { // the program's runtime makes some of these calls, too
			seen[way] = slices.Compact(seen[way])
		}
	}
	assert.Check(t, len(seen[rules.AttachAll]) > len(nrs)/2, "%d of %d calls", len(seen[rules.AttachAll]), len(nrs))
	assert.Check(t, is.DeepEqual(seen[rules.AttachFunction], seen[rules.AttachAll]))
}
