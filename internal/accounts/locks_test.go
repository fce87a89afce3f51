package accounts

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/stuckfs"
)

// contend has a second thread wait for a lock of the kernel that a first one holds for a while, as
// both do the same in a slow file system; it returns how long the second one took.
func (p *process) contend(t *testing.T, first, second uint32, do func(n int)) (took uint64) {
	t.Helper()
	p.carryAll(work{first, func() { do(0) }}, work{second, func() {
		sleep(10 * time.Millisecond) // the first one has the lock
		begin := monotonic()
		do(1)
		took = monotonic() - begin
	}})
	return took
}

// TestKernelLocks: what a thread waits for a mutex and for a semaphore of the kernel is in their
// values, and that it slept there is a part of its own, apart from the locks of user space.
func TestKernelLocks(t *testing.T) {
	p := openGroups(t, Locks)
	const slow = 50 * time.Millisecond
	behind := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(behind, "file"), make([]byte, 1<<16), 0o644))
	m := stuckfs.MountMirror(t, behind)
	dir := m.Path()
	shared := open(t, filepath.Join(dir, "file"), unix.O_RDONLY)
	directories := 0
	for _, lock := range []struct {
		name  string
		value int
		op    stuckfs.Op
		do    func(n int)
	}{
		// Two that make directories in one: the inode's semaphore.
		{"rwsem", abi.ActivityKernelLockRwsemNs, stuckfs.Create, func(n int) {
			assert.Check(t, unix.Mkdir(filepath.Join(dir, fmt.Sprint(directories, n)), 0o755))
		}},
		// Two that read by one descriptor: the mutex of its position.
		{"mutex", abi.ActivityKernelLockMutexNs, stuckfs.Read, func(int) {
			var b [512]byte
			_, err := unix.Read(shared, b[:])
			assert.Check(t, err)
		}},
	} {
		t.Run(lock.name, func(t *testing.T) {
			again(t, func() string {
				directories++
				assert.NilError(t, unix.Fadvise(shared, 0, 0, unix.FADV_DONTNEED))
				m.Slow(slow, lock.op)
				defer m.Mend()
				holds, waits := p.token(), p.token()
				took := p.contend(t, holds, waits, lock.do)
				p.show("waits", waits)
				got, asleep := p.value(waits, lock.value), p.value(waits, abi.ActivityBlockedKernelLockNs)
				switch {
				case p.value(waits, abi.ActivityKernelLocks) == 0 || got < uint64(slow)/2 || got > took:
					return fmt.Sprintf("waited %d of %d for the lock", got, took)
				case !within(asleep+p.value(waits, abi.ActivityRunnableNs), got, 20) && asleep < uint64(slow)/2:
					return fmt.Sprintf("slept %d in the lock, waited %d", asleep, got)
				case p.value(waits, abi.ActivityBlockedLockNs) > 5_000_000: // threads of Go wait for each other
					return fmt.Sprintf("blocked on locks of user space: %d", p.value(waits, abi.ActivityBlockedLockNs))
				case p.value(holds, lock.value) > 5_000_000:
					return fmt.Sprintf("who held it waited %d", p.value(holds, lock.value))
				}
				return p.addsUp(waits, took)
			})
		})
	}
}

// addsUp says what is wrong with parts that should be all that a thread did.
func (p *process) addsUp(token uint32, took uint64) string {
	known := p.value(token, abi.ActivityCpuNs) + p.value(token, abi.ActivityRunnableNs) + p.value(token, abi.ActivityBlockedNs)
	if known < took*95/100 { // some machines keep switches from every tracer
		return fmt.Sprintf("%d known of %d", known, took)
	}
	return ""
}

// TestSpinLocks: threads contend for a spinning lock of readers and writers. Of two tasks that spin for
// another kind of lock, the second waits without a tracepoint (the pending bit of a queued spin lock).
func TestSpinLocks(t *testing.T) {
	p := openGroups(t, Locks)
	if runtime.NumCPU() == 1 {
		t.Skip("needs two CPUs")
	}
	mine, near := p.token(), p.token()
	for end := time.Now().Add(30 * time.Second); p.value(mine, abi.ActivityKernelLockSpinNs) == 0 && time.Now().Before(end); {
		churn := func() {
			for range 20_000 {
				_ = unix.Setpgid(0, 0) // writes tasklist_lock, also if it must not change anything
				_, err := unix.Getpriority(unix.PRIO_PGRP, 0)
				assert.Check(t, err)
			}
		}
		p.carryAll(work{mine, churn}, work{near, churn})
	}
	p.show("mine", mine)
	spun, times := p.value(mine, abi.ActivityKernelLockSpinNs), p.value(mine, abi.ActivityKernelLocks)
	assert.Check(t, spun > 0 && times > 0)
	assert.Check(t, spun < p.value(mine, abi.ActivityCpuNs), "it is in the CPU time: %d", spun)
}

// TestNoLocks: without the group, locks of the kernel are waits for other tasks.
func TestNoLocks(t *testing.T) {
	p := openGroups(t)
	m := stuckfs.MountMirror(t, t.TempDir())
	m.Slow(20*time.Millisecond, stuckfs.Create)
	holds, waits := p.token(), p.token()
	p.contend(t, holds, waits, func(n int) { assert.Check(t, unix.Mkdir(filepath.Join(m.Path(), fmt.Sprint(n)), 0o755)) })
	m.Mend()
	for _, v := range []int{abi.ActivityKernelLocks, abi.ActivityBlockedKernelLockNs, abi.ActivityKernelLockRwsemNs} {
		assert.Check(t, cmp.Equal(p.value(waits, v), uint64(0)))
	}
}
