package symbols

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/unwind"
)

// stopped is a program that sleeps, with the registers and the stack that it sleeps with.
func stopped(t *testing.T, command ...string) (pid int, thread *unwind.Thread) {
	t.Helper()
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(command[0], command[1:]...)
	stdin, err := cmd.StdinPipe()
	assert.NilError(t, err)
	stdout, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid = cmd.Process.Pid
	if command[0] != "sleep" {
		_, err = bufio.NewReader(stdout).ReadString('\n')
		assert.NilError(t, err)
	}
	asleep := func() bool { // in the call that it is to sleep in
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		return strings.HasPrefix(string(text), "0 0x0 ") || strings.HasPrefix(string(text), fmt.Sprintf("%d ", unix.SYS_CLOCK_NANOSLEEP))
	}
	for end := time.Now().Add(20 * time.Second); !asleep(); time.Sleep(time.Millisecond) {
		if os.Geteuid() != 0 {
			t.Skip("not root: where another process sleeps is told to root alone")
		}
		assert.Assert(t, time.Now().Before(end), "%v does not sleep", command)
	}
	assert.NilError(t, unix.PtraceAttach(pid))
	var status unix.WaitStatus
	_, err = unix.Wait4(pid, &status, unix.WALL, nil)
	assert.NilError(t, err)
	var r syscall.PtraceRegs
	assert.NilError(t, syscall.PtraceGetRegs(pid, &r))
	assert.NilError(t, unix.PtraceDetach(pid))
	data := make([]byte, 64<<10)
	n, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}},
		[]unix.RemoteIovec{{Base: uintptr(r.Rsp), Len: len(data)}}, 0)
	assert.NilError(t, err)
	regs := []uint64{r.Rip, r.Rsp, r.R15, r.R14, r.R13, r.R12, r.Rbp, r.Rbx}
	return pid, unwind.NewThread(unwind.AMD64, regs, false, unwind.Memory{Base: r.Rsp, Data: data[:n]})
}

// bareNames are the names of a stack without offsets and modules.
func bareNames(frames []string) (out []string) {
	for _, f := range frames {
		name, _, _ := strings.Cut(f, "+")
		out = append(out, name)
	}
	return out
}

// TestUnwind: programs without frame pointers have whole stacks.
func TestUnwind(t *testing.T) {
	chain := []string{"link_innermost", "link_three", "link_two", "link_alloca", "link_aligned", "link_one", "main"}
	for name, flags := range map[string][]string{
		"O2":         {"-O2"},
		"O1":         {"-O1"},
		"static":     {"-O2", "-static"},
		"no pie":     {"-O2", "-no-pie", "-fno-PIE"},
		"stripped":   {"-O2", "-rdynamic", "-s"},
		"Os, C++":    {"-Os", "-fexceptions"},
		"pointers":   {"-O2", "-fno-omit-frame-pointer"},
		"many sects": {"-O2", "-ffunction-sections"},
	} {
		t.Run(name, func(t *testing.T) {
			command := append([]string{"gcc", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-ipa-ra", "testdata/chain.c"}, flags...)
			pid, thread := stopped(t, build(t, "chain", command...))
			r := New(nil)
			got, err := r.Unwind(pid, thread)
			assert.NilError(t, err)
			frames := r.User(pid, got.Frames).Frames
			assert.Check(t, got.Whole && !got.Beyond, "%q: whole %t, beyond %t", frames, got.Whole, got.Beyond)
			assert.Check(t, strings.Contains(strings.Join(bareNames(frames), " "), strings.Join(chain, " ")), "got %q", frames)

			thread.Memory.Data = thread.Memory.Data[:512]
			short, err := r.Unwind(pid, thread)
			assert.Check(t, err == nil && short.Beyond && len(short.Frames) > 2 && len(short.Frames) < len(got.Frames),
				"with 512 bytes %#x, %v", short.Frames, err)
		})
	}
}

// TestUnwindDistribution: what a distribution builds has whole stacks.
func TestUnwindDistribution(t *testing.T) {
	for _, command := range [][]string{
		{"sleep", "1000"},
		{"python3", "-c", "import time\ndef f(n):\n  print(flush=True) or time.sleep(1000) if n == 0 else f(n-1)\nf(20)"},
		{"perl", "-e", "$| = 1; print \"\\n\"; sleep 1000"},
	} {
		t.Run(command[0], func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Logf("%s is not installed", command[0])
				return
			}
			pid, thread := stopped(t, command...)
			r := New(nil)
			got, err := r.Unwind(pid, thread)
			frames := r.User(pid, got.Frames).Frames
			assert.Check(t, err == nil && got.Whole && len(frames) >= 5, "%q, %v", frames, err)
			assert.Check(t, strings.Contains(strings.Join(frames, " "), "__libc_start_main"), "%q", frames)
			t.Logf("%d frames: %q", len(frames), frames)
		})
	}
}

// TestUnwindExited: of a process that is gone its code is known if it was seen before.
func TestUnwindExited(t *testing.T) {
	pid, thread := stopped(t, build(t, "chain", "gcc", "-O2", "testdata/chain.c"))
	seen, unseen := New(nil), New(nil)
	before, err := seen.Unwind(pid, thread)
	assert.Assert(t, err == nil && before.Whole)
	assert.NilError(t, unix.Kill(pid, unix.SIGKILL))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		got, err := unseen.Unwind(pid, thread)
		if err != nil {
			assert.Check(t, strings.Contains(err.Error(), "exited") && len(got.Frames) == 1 && got.Frames[0] == thread.Registers.PC,
				"%#x, %v", got.Frames, err)
			break
		}
		unseen = New(nil)
		assert.Assert(t, time.Now().Before(end), "it does not exit")
	}
	after, err := seen.Unwind(pid, thread)
	assert.NilError(t, err)
	assert.DeepEqual(t, after, before)
}
