// Command narrow makes system calls of the architecture that it is built for:
// tests build it for 32 bits.
//
//	narrow sleep DURATION     sleeps in one nanosleep
//	narrow sleep64 DURATION   sleeps in one clock_nanosleep with times of 64 bits
//	narrow exec PROGRAM ARG…  becomes another program
//	narrow calls NUMBER…      makes these calls, all arguments of which are 0
//
// It does so in its first thread, which is called sleeper (but for exec), and
// whose signals are blocked.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// The call has a number of its own where the usual one takes times of 32 bits.
var clockNanosleep = map[string]uintptr{"386": 407, "arm": 407}

func main() {
	runtime.LockOSThread()
	if len(os.Args) < 3 {
		fail("want sleep, sleep64, exec or calls, and an argument")
	}
	if os.Args[1] == "exec" {
		err := syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
		fail(err)
	}
	blocked := ^uint64(0) // also those by which the runtime preempts
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&blocked)), 0, unsafe.Sizeof(blocked), 0, 0)
	name := []byte("sleeper\x00")
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0)
	switch os.Args[1] {
	case "sleep":
		ts := syscall.NsecToTimespec(duration().Nanoseconds())
		_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	case "sleep64":
		nr, ok := clockNanosleep[runtime.GOARCH]
		if !ok {
			fail("sleep64 is for 32-bit programs")
		}
		const monotonic = 1
		d := duration()
		ts := [2]int64{int64(d / time.Second), int64(d % time.Second)}
		_, _, _ = syscall.RawSyscall6(nr, monotonic, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	case "calls":
		for _, arg := range os.Args[2:] {
			nr, err := strconv.Atoi(arg)
			if err != nil {
				fail(err)
			}
			_, _, _ = syscall.RawSyscall6(uintptr(nr), 0, 0, 0, 0, 0, 0)
		}
	default:
		fail("unknown: " + os.Args[1])
	}
}

func duration() time.Duration {
	d, err := time.ParseDuration(os.Args[2])
	if err != nil {
		fail(err)
	}
	return d
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "narrow:", why)
	os.Exit(1)
}
