package inject

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
	if truth.Track != track || truth.Comm != comm {
		t.Errorf("truth is of %s by %s, want %s by %s", truth.Track, truth.Comm, track, comm)
	}
	if truth.PID <= 0 || truth.TID <= 0 || truth.PID == os.Getpid() {
		t.Errorf("truth has pid %d, tid %d, want those of a child", truth.PID, truth.TID)
	}
	if truth.Delay() < asked {
		t.Errorf("truth lasted %v, want at least the %v asked for", truth.Delay(), asked)
	}
	t.Logf("%s: asked %v, truth %v", track, asked, truth.Delay())
}

func TestWakeup(t *testing.T) {
	needRoot(t)
	const asked = 20 * time.Millisecond
	truth, err := Wakeup(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	checkTruth(t, truth, "wakeup", CommVictim, asked)
}

func TestWakeupRefusesWhatTheKernelWouldThrottle(t *testing.T) {
	for _, delay := range []time.Duration{-1, 0, MaxWakeup + 1} {
		if _, err := Wakeup(t.Context(), delay); err == nil {
			t.Errorf("a delay of %v was accepted", delay)
		}
	}
}

func TestWakeupCancelled(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Wakeup(ctx, time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
}

func TestSlowDisk(t *testing.T) {
	needRoot(t)
	disk, err := Slow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatalf("%s: %v", c.track, err)
		}
		checkTruth(t, truth, c.track, c.comm, c.asked)
	}
	if _, err := disk.Read(t.Context(), 0); err == nil {
		t.Error("a delay of 0 was accepted")
	}
	device := attached(disk.Device())
	for range 2 {
		if err := disk.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	checkGone(t, device, disk.server.proc.Pid, disk.reader.proc.Pid)
	if _, err := disk.Read(t.Context(), time.Millisecond); err == nil {
		t.Error("reading a closed disk succeeded")
	}
}

func TestSlowDiskCancelled(t *testing.T) {
	needRoot(t)
	disk, err := Slow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close() // checked below
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := disk.Blocked(ctx, MaxHold); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	if _, err := disk.Read(t.Context(), time.Millisecond); err == nil {
		t.Error("a cancelled disk can be read again: it would answer for the earlier read")
	}
	device := attached(disk.Device())
	if err := disk.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	checkGone(t, device, disk.server.proc.Pid, disk.reader.proc.Pid)
}

// However the demo or one of its children is killed in the middle of a read,
// nothing of it stays on the machine.
func TestNothingStaysAfterKill(t *testing.T) {
	needRoot(t)
	for _, who := range []string{"demo", "server", "reader", "all", "terminate"} {
		t.Run(who, func(t *testing.T) {
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			proc, err := os.StartProcess("/proc/self/exe", []string{"demo"}, &os.ProcAttr{
				Env:   append(os.Environ(), "INJECT_TEST_DEMO=1"),
				Files: []*os.File{nil, in, os.Stderr},
				Sys:   &syscall.SysProcAttr{Setpgid: true},
			})
			in.Close() // the demo has its own
			if err != nil {
				t.Fatal(err)
			}
			var device string
			var server, reader int
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscan(line, &device, &server, &reader); err != nil {
				t.Fatalf("the demo said %q: %v", line, err)
			}
			loop := attached(device)
			until(t, "the reader waits for the disk", func() bool { return sleepsUninterruptibly(reader) })
			victims := map[string][]int{
				"demo": {proc.Pid}, "server": {server}, "reader": {reader},
				"all": {proc.Pid, server, reader},
			}[who]
			if who == "terminate" {
				// The whole group, as a terminal does with its signal.
				if err := syscall.Kill(-proc.Pid, syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			for _, pid := range victims {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if who == "reader" {
				// It cannot die before its read is answered, and the demo waits for it.
				if err := proc.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := proc.Wait(); err != nil {
				t.Fatal(err)
			}
			checkGone(t, loop, server, reader)
		})
	}
}

// sleepsUninterruptibly tells whether any thread of a process is in state D.
func sleepsUninterruptibly(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		_, after, _ := strings.Cut(string(text), ") ")
		if strings.HasPrefix(after, "D") {
			return true
		}
	}
	return false
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
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), "tailcam-slowfs") {
		t.Errorf("a mount of the slow file system is left:\n%s", mounts)
	}
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
		if got := Main(args); got != 1 {
			t.Errorf("Main(%q) = %d, want 1", args, got)
		}
	}
}
