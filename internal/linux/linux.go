// Package linux holds what the kernel defines and several packages need: the
// names of its numbers, its clock, and its list of symbols. It imports nothing
// of ours.
package linux

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Softirqs names the softirqs, in the kernel's order and as it prints them
// (include/linux/interrupt.h, the same from 6.1 to 7.2).
var Softirqs = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

// Softirq names a softirq, or returns unknown for a number that has no name.
func Softirq(vector uint32, unknown string) string {
	if vector < uint32(len(Softirqs)) {
		return Softirqs[vector]
	}
	return unknown
}

// Monotonic reads CLOCK_MONOTONIC, the clock of the kernel side, in nanoseconds.
// It makes the system call itself, so that the Go scheduler neither knows of it
// nor takes the thread away.
//
//go:nosplit
func Monotonic() uint64 {
	var ts unix.Timespec
	//nolint:errcheck // this clock exists everywhere
	syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return uint64(ts.Sec)*1e9 + uint64(ts.Nsec)
}
