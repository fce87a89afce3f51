package provoke

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// block is what is read at once past the page cache, and one page.
const block = 4096

// Switches proves what a switch tells of the task that leaves: the system call
// that it blocks in, that it waits for I/O, in a page fault, is stopped by a
// freezer, has used up its quota, was preempted. disk is a file or block
// device of at least 1 MiB that answers no faster than a disk.
func Switches(t *testing.T, history *History, disk string) {
	leaves := func(tid int, is func(trace.Switch) bool) func(trace.Event) bool {
		return func(ev trace.Event) bool {
			s, ok := ev.Body.(trace.Switch)
			return ok && ev.TID == tid && is(s)
		}
	}
	t.Run("call", func(t *testing.T) {
		history := history.with(t)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		history.Until(func() {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
		}, map[string]func(trace.Event) bool{"a sleep by its system call": leaves(unix.Gettid(), func(s trace.Switch) bool {
			return s.Call == unix.SYS_NANOSLEEP && s.PrevState&1 != 0 && !s.IOWait && !s.Preempted && !s.Frozen && !s.Throttled
		})})
	})
	t.Run("iowait", func(t *testing.T) {
		history := history.with(t)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f, m := openDisk(t, disk)
		buf, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		assert.NilError(t, err)
		defer func() { _ = unix.Munmap(buf) }()
		direct, err := unix.Open(disk, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		assert.NilError(t, err)
		defer unix.Close(direct)
		tid, sum := unix.Gettid(), 0
		history.Until(func() {
			_, err := unix.Pread(direct, buf, 0)
			assert.NilError(t, err)
			// The page leaves the page cache, and this address space before that.
			assert.NilError(t, unix.Madvise(m, unix.MADV_DONTNEED))
			assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
			sum += int(m[0])
		}, map[string]func(trace.Event) bool{
			"a direct read": leaves(tid, func(s trace.Switch) bool { return s.IOWait && s.Call == unix.SYS_PREAD64 }),
			"a page fault":  leaves(tid, func(s trace.Switch) bool { return s.IOWait && s.Call == trace.CallException }),
		})
		_ = sum
	})
	t.Run("kernel-thread", func(t *testing.T) {
		history := history.with(t)
		history.Until(func() { time.Sleep(50 * time.Millisecond) }, map[string]func(trace.Event) bool{
			"a kernel thread that sleeps": func(ev trace.Event) bool {
				s, ok := ev.Body.(trace.Switch)
				return ok && s.PrevComm.String()[:2] == "rc" && s.PrevState != 0 && s.Call == trace.CallNone
			},
		})
	})
	t.Run("preempted", func(t *testing.T) {
		history := history.with(t)
		for range runtime.NumCPU() + 1 {
			StartSpinner(t)
		}
		history.Until(func() { time.Sleep(100 * time.Millisecond) }, map[string]func(trace.Event) bool{
			"one of more tasks than CPUs": func(ev trace.Event) bool {
				s, ok := ev.Body.(trace.Switch)
				return ok && s.PrevComm.String() == Spinner && s.PrevState == 0 && s.Call == trace.CallNone && !s.Throttled
			},
		})
	})
	t.Run("frozen", func(t *testing.T) {
		history := history.with(t)
		g := NewCgroup(t, "freezer")
		g.Add(t, StartSpinner(t))
		history.Until(func() {
			g.Freeze(t, true)
			time.Sleep(20 * time.Millisecond)
			g.Freeze(t, false)
			time.Sleep(20 * time.Millisecond)
		}, map[string]func(trace.Event) bool{"a task in a freezer": func(ev trace.Event) bool {
			s, ok := ev.Body.(trace.Switch)
			return ok && s.PrevComm.String() == Spinner && s.Frozen
		}})
	})
	t.Run("throttled", func(t *testing.T) {
		history := history.with(t)
		g := NewCgroup(t, "cpu")
		Quota(t, g, 50*time.Millisecond)
		g.Add(t, StartSpinner(t))
		history.Until(func() { time.Sleep(200 * time.Millisecond) }, map[string]func(trace.Event) bool{
			"a task without quota": func(ev trace.Event) bool {
				s, ok := ev.Body.(trace.Switch)
				return ok && s.PrevComm.String() == Spinner && s.Throttled
			},
		})
	})
}

// Quota lets a group run for a tenth of each period.
func Quota(t *testing.T, g *Cgroup, period time.Duration) {
	t.Helper()
	whole := strconv.FormatInt(period.Microseconds(), 10)
	value := strconv.FormatInt(period.Microseconds()/10, 10)
	if g.V2 {
		value += " " + whole
	} else {
		g.Set(t, "cpu.cfs_period_us", "", whole)
	}
	g.Set(t, "cpu.cfs_quota_us", "cpu.max", value)
}

// openDisk opens a file or block device and maps its first page.
func openDisk(t *testing.T, path string) (*os.File, []byte) {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	m, err := syscall.Mmap(int(f.Fd()), 0, block, unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	t.Cleanup(func() {
		_ = syscall.Munmap(m)
		f.Close()
	})
	return f, m
}

// MakeDisk writes a file of some bytes that is on the disk, not only in the page cache.
func MakeDisk(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	assert.NilError(t, os.WriteFile(path, make([]byte, size), 0o600))
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, f.Sync())
	assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	return path
}

func address(m []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&m[0]))) }
