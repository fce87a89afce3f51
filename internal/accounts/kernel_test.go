package accounts

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
)

// threadTime is the calling thread's own clock.
func threadTime() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return uint64(t.Nano())
}

func spin(d time.Duration) {
	for end := threadTime() + uint64(d); threadTime() < end; {
		for range 20_000 { // mostly in user space
			_ = unix.EPERM.Error()
		}
	}
}

// TestKernelTime: time on a CPU in system calls, without what they wait.
func TestKernelTime(t *testing.T) {
	p := openGroups(t, Syscalls, Memory)
	calls, waits, computes, faults := p.token(), p.token(), p.token(), p.token()
	zero := open(t, "/dev/zero", unix.O_RDONLY)
	data := make([]byte, 4*mebibyte)
	touch(data)()
	var inCalls, inFaults uint64
	p.carry(calls, func() {
		begin := threadTime()
		for range 100 {
			// unix.Read tells the race detector of each byte, which takes longer.
			_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(zero), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
			assert.Check(t, cmp.Equal(errno, unix.Errno(0)))
		}
		inCalls = threadTime() - begin
	})
	p.carry(waits, func() { sleep(20 * time.Millisecond) })
	p.carry(computes, func() { spin(20 * time.Millisecond) })
	memory := anonymous(t, 4096*4096)
	p.carry(faults, func() {
		begin := threadTime()
		touch(memory)()
		inFaults = threadTime() - begin
	})
	for name, token := range map[string]uint32{"calls": calls, "waits": waits, "computes": computes, "faults": faults} {
		p.show(name, token)
	}
	got := p.value(calls, abi.ActivityCpuKernelNs)
	assert.Check(t, got <= inCalls+50_000 && got*100 >= inCalls*85, "%d of %d", got, inCalls)
	assert.Check(t, p.value(waits, abi.ActivityCpuKernelNs) < 10e6)
	assert.Check(t, p.value(waits, abi.ActivitySyscallNs) >= 20e6)
	assert.Check(t, p.value(computes, abi.ActivityCpuKernelNs) < 10e6)
	got = p.value(faults, abi.ActivityCpuKernelNs)
	assert.Check(t, got > 0 && got <= inFaults, "%d of %d", got, inFaults)
}

func sleep(d time.Duration) {
	pause := unix.NsecToTimespec(int64(d))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &pause, &pause) == unix.EINTR {
	}
}

// TestNetworkTime: time on a CPU in calls that send and receive, not in others, and not what they wait.
func TestNetworkTime(t *testing.T) {
	p := openGroups(t, Network, Syscalls)
	client, server := connection(t)
	answers, asks, neither := p.token(), p.token(), p.token()
	const size = 8 * mebibyte
	var ran uint64
	p.carryAll(
		work{asks, func() { sleep(20 * time.Millisecond); send(t, client, size) }},
		work{answers, func() {
			begin := threadTime()
			receive(t, server, size)
			ran = threadTime() - begin
		}},
		work{neither, func() {
			zero := open(t, "/dev/zero", unix.O_RDONLY)
			receive(t, zero, size)
		}},
	)
	p.show("answers", answers)
	got := p.value(answers, abi.ActivityNetworkNs)
	assert.Check(t, got > 0 && got <= ran+50_000, "%d of %d", got, ran)
	assert.Check(t, got <= p.value(answers, abi.ActivityCpuKernelNs))
	assert.Check(t, got*100 >= p.value(answers, abi.ActivityCpuKernelNs)*70, "it made no other calls")
	assert.Check(t, p.value(asks, abi.ActivityNetworkNs) > 0)
	assert.Check(t, cmp.Equal(p.value(neither, abi.ActivityNetworkNs), uint64(0)))
}

// resident says how many pages of a file are in memory.
func resident(t *testing.T, fd, size int) (n int) {
	t.Helper()
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	assert.NilError(t, err)
	defer unix.Munmap(memory)
	in := make([]byte, size/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&memory[0])), uintptr(size), uintptr(unsafe.Pointer(&in[0])))
	assert.Equal(t, errno, unix.Errno(0))
	for _, b := range in {
		n += int(b & 1)
	}
	return n
}

// TestEviction: pages that one token brought in and another evicted are in the accounts of
// both; not those that left with their file, or that a token evicted itself.
func TestEviction(t *testing.T) {
	p := openGroups(t, PageCache)
	const size = 8 * mebibyte
	pages := uint64(size / unix.Getpagesize())
	mine, neighbour, other := p.token(), p.token(), p.token()
	fd, cut := open(t, newFile(t, size), unix.O_RDONLY), open(t, newFile(t, size), unix.O_RDWR)
	own := open(t, newFile(t, size), unix.O_RDONLY)
	forget := func(fd int) func() {
		return func() { assert.Check(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)) }
	}
	p.carry(mine, reader(t, fd, size, mebibyte))
	p.carry(other, reader(t, cut, size, mebibyte))
	p.carry(other, reader(t, own, size, mebibyte))
	p.carry(neighbour, forget(fd))
	p.carry(neighbour, func() { assert.Check(t, unix.Ftruncate(cut, 0)) })
	p.carry(other, forget(own))
	p.show("mine", mine)
	p.show("neighbour", neighbour)
	left := uint64(resident(t, fd, size))
	assert.Check(t, left < pages/10, "%d pages are left", left)
	assert.Check(t, cmp.Equal(p.value(mine, abi.ActivityEvictedPages), pages-left))
	assert.Check(t, cmp.Equal(p.value(neighbour, abi.ActivityEvictsPages), pages-left))
	assert.Check(t, cmp.Equal(p.value(neighbour, abi.ActivityEvictedPages), uint64(0)))
	assert.Check(t, cmp.Equal(p.value(other, abi.ActivityEvictedPages), uint64(0)))
	assert.Check(t, cmp.Equal(p.value(other, abi.ActivityEvictsPages), uint64(0)))
}
