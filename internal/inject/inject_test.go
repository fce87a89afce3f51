package inject

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	support "github.com/tailcam/tailcam/test/support/child"
)

// The test program is its own child, and in two of its roles the whole demo.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		os.Exit(Main(os.Args[2:]))
	}
	if os.Getenv("INJECT_TEST_DEMO") != "" {
		os.Exit(demo())
	}
	os.Exit(m.Run())
}

// demo sets a slow disk up, says where, and reads it for a minute.
func demo() int {
	ctx := context.Background()
	disk, err := Slow(ctx)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(disk.Device(), disk.server.proc.Pid, disk.reader.proc.Pid)
	if _, err := disk.Read(ctx, MaxHold); err != nil {
		fmt.Println("error:", err)
	}
	return 0
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: real-time threads, mounts and loop devices")
	}
}

func checkTruth(t *testing.T, truth Truth, track, comm string, asked time.Duration) {
	t.Helper()
	assert.Check(t, truth.Track == track && truth.Comm == comm,
		"truth is of %s by %s, want %s by %s", truth.Track, truth.Comm, track, comm)
	assert.Check(t, truth.PID > 0 && truth.TID > 0 && truth.PID != os.Getpid(),
		"truth has pid %d, tid %d, want those of a child", truth.PID, truth.TID)
	assert.Check(t, truth.Delay() >= asked, "truth lasted %v, want at least the %v asked for", truth.Delay(), asked)
	t.Logf("%s: asked %v, truth %v", track, asked, truth.Delay())
}

func TestWakeup(t *testing.T) {
	needRoot(t)
	const asked = 20 * time.Millisecond
	truth, err := Wakeup(t.Context(), asked)
	assert.NilError(t, err)
	checkTruth(t, truth, "wakeup", CommVictim, asked)
}

func TestWakeupRefusesWhatTheKernelWouldThrottle(t *testing.T) {
	for _, delay := range []time.Duration{-1, 0, MaxWakeup + 1} {
		_, err := Wakeup(t.Context(), delay)
		assert.Check(t, err != nil, "a delay of %v was accepted", delay)
	}
}

func TestWakeupCancelled(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Wakeup(ctx, time.Millisecond)
	assert.Check(t, is.ErrorIs(err, context.Canceled))
}

func TestSlowDisk(t *testing.T) {
	needRoot(t)
	disk, err := Slow(t.Context())
	assert.NilError(t, err)
	defer disk.Close() // checked below
	for _, c := range []struct {
		do          func(context.Context, time.Duration) (Truth, error)
		track, comm string
		asked       time.Duration
	}{
		{disk.Read, "block", CommReader, 20 * time.Millisecond},
		{disk.Blocked, "offcpu", CommBlocked, 80 * time.Millisecond},
		{disk.Syscall, "syscall", CommSyscall, 60 * time.Millisecond},
		{disk.Read, "block", CommReader, time.Millisecond},
		{disk.Syscall, "syscall", CommSyscall, time.Millisecond},
	} {
		truth, err := c.do(t.Context(), c.asked)
		assert.NilError(t, err, "%s", c.track)
		checkTruth(t, truth, c.track, c.comm, c.asked)
	}
	_, err = disk.Read(t.Context(), 0)
	assert.Check(t, err != nil, "a delay of 0 was accepted")
	device := attached(disk.Device())
	for range 2 {
		assert.Check(t, disk.Close(), "close")
	}
	checkGone(t, device, disk.server.proc.Pid, disk.reader.proc.Pid)
	_, err = disk.Read(t.Context(), time.Millisecond)
	assert.Check(t, err != nil, "reading a closed disk succeeded")
}

func TestSlowDiskCancelled(t *testing.T) {
	needRoot(t)
	disk, err := Slow(t.Context())
	assert.NilError(t, err)
	defer disk.Close() // checked below
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = disk.Blocked(ctx, MaxHold)
	assert.Check(t, is.ErrorIs(err, context.Canceled))
	_, err = disk.Read(t.Context(), time.Millisecond)
	assert.Check(t, err != nil, "a cancelled disk can be read again: it would answer for the earlier read")
	device := attached(disk.Device())
	assert.Check(t, disk.Close(), "close")
	checkGone(t, device, disk.server.proc.Pid, disk.reader.proc.Pid)
}

// However the demo or one of its children is killed in the middle of a read,
// nothing of it stays on the machine.
func TestNothingStaysAfterKill(t *testing.T) {
	needRoot(t)
	for _, who := range []string{"demo", "server", "reader", "all", "terminate"} {
		t.Run(who, func(t *testing.T) {
			out, in, err := os.Pipe()
			assert.NilError(t, err)
			defer out.Close()
			proc, err := os.StartProcess("/proc/self/exe", []string{"demo"}, &os.ProcAttr{
				Env:   append(os.Environ(), "INJECT_TEST_DEMO=1"),
				Files: []*os.File{nil, in, os.Stderr},
				Sys:   &syscall.SysProcAttr{Setpgid: true},
			})
			in.Close() // the demo has its own
			assert.NilError(t, err)
			var device string
			var server, reader int
			line, err := bufio.NewReader(out).ReadString('\n')
			assert.NilError(t, err)
			_, err = fmt.Sscan(line, &device, &server, &reader)
			assert.NilError(t, err, "the demo said %q", line)
			loop := attached(device)
			until(t, "the reader waits for the disk", func() bool { return strings.Contains(support.States(reader), "D") })
			victims := map[string][]int{
				"demo": {proc.Pid}, "server": {server}, "reader": {reader},
				"all": {proc.Pid, server, reader},
			}[who]
			if who == "terminate" {
				// The whole group, as a terminal does with its signal.
				assert.NilError(t, syscall.Kill(-proc.Pid, syscall.SIGTERM))
			}
			for _, pid := range victims {
				assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL))
			}
			if who == "reader" {
				// It cannot die before its read is answered, and the demo waits for it.
				assert.NilError(t, proc.Kill())
			}
			_, err = proc.Wait()
			assert.NilError(t, err)
			checkGone(t, loop, server, reader)
		})
	}
}

// attached notes which device it is that has to become free.
func attached(name string) *loopDisk {
	return &loopDisk{name: name, seq: diskSeq(name)}
}

func checkGone(t *testing.T, disk *loopDisk, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		until(t, fmt.Sprintf("process %d is gone", pid), func() bool {
			return !ours(pid)
		})
	}
	until(t, disk.name+" is free", func() bool { return !disk.attached() })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(mounts), "tailcam-slowfs"),
		"a mount of the slow file system is left:\n%s", mounts)
}

// ours tells whether a process exists, is no zombie, and is one of our children.
func ours(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), "(tailcam-") && !strings.Contains(string(stat), ") Z ")
}

// until waits for something that must come, however slow the machine is.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for range 6000 {
		if reached() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never came true: %s", what)
}

func TestMainRefusesPeople(t *testing.T) {
	for _, args := range [][]string{nil, {"nonsense"}, {"hog", "more"}} {
		got := Main(args)
		assert.Check(t, got == 1, "Main(%q) = %d, want 1", args, got)
	}
}
