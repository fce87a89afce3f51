// Package cpus gives a CPU of this machine to one thread: to stay there, to take
// all of it, to have a timer end on it.
package cpus

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
)

// Keep keeps the calling thread to some CPUs.
func Keep(cpus ...int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}

// First is the first CPU that the calling thread may use.
func First(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &set))
	cpu := 0
	for !set.IsSet(cpu) {
		cpu++
	}
	return cpu
}

// Hog starts a real-time thread that spins on a CPU for a while, and returns when it
// does; what it returns waits for the end. The kernel may still lend others a part of
// the CPU. Until it spins this polls: what Go would wake to tell of it may be behind it.
func Hog(t *testing.T, cpu int, priority uint32, d time.Duration) (wait func() (start, end uint64)) {
	t.Helper()
	var start, end uint64
	var begun atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer begun.Store(true)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
		if !assert.Check(t, Keep(cpu)) || !assert.Check(t, unix.SchedSetAttr(0, &attr, 0)) ||
			!assert.Check(t, BlockSignals()) {
			return
		}
		start = linux.Monotonic()
		begun.Store(true)
		end = spinUntil(start + uint64(d))
	}()
	for !begun.Load() {
		runtime.Gosched()
	}
	return func() (uint64, uint64) {
		<-done
		return start, end
	}
}

// BlockSignals blocks all signals for the calling thread, which must be locked and end
// with its goroutine: Go's own cannot cut its sleeps short then, nor preempt it.
func BlockSignals() error {
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	return unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil)
}

// spinUntil spins until a time, and returns when it ended. Go does not preempt it where
// signals are blocked: it calls nothing that asks.
//
//go:nosplit
func spinUntil(end uint64) uint64 {
	var now unix.Timespec
	for uint64(now.Nano()) < end {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
	}
	return uint64(now.Nano())
}

// Timer makes a timer of a CPU end after about d: a thread of its own waits that
// long for a packet. It returns when the thread is about to.
func Timer(t *testing.T, cpu int, d time.Duration) (wait func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	tv := unix.NsecToTimeval(d.Nanoseconds())
	assert.NilError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		assert.Check(t, Keep(cpu))
		close(ready)
		_, _ = unix.Read(fd, make([]byte, 1))
	}()
	<-ready
	time.Sleep(5 * time.Millisecond)
	return func() { <-done }
}

// NetRX is the vector of received packets (include/linux/interrupt.h).
const NetRX = 3

// Packets returns what sends a packet to a socket of this process, by the loopback
// device: each makes a softirq net_rx in the sending thread itself.
func Packets(t *testing.T) (send func()) {
	t.Helper()
	sink, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	assert.NilError(t, err)
	t.Cleanup(func() { _ = sink.Close() })
	conn, err := net.DialUDP("udp4", nil, sink.LocalAddr().(*net.UDPAddr))
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func() {
		_, err := conn.Write([]byte("x"))
		assert.Check(t, err)
	}
}

// Contend has two threads write and read the table of processes at once; begins is called in each,
// with its id.
func Contend(t *testing.T, begins func(tid int)) {
	t.Helper()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begins(unix.Gettid())
			for range 20_000 {
				_ = unix.Setpgid(0, 0) // writes, also if it must not change anything
				_, err := unix.Getpriority(unix.PRIO_PGRP, 0)
				assert.Check(t, err)
			}
		})
	}
	all.Wait()
}
