package inject

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// ignoreStops leaves the end of a child to its parent: a Ctrl-C reaches the
// whole foreground group, and the parent wants to clean up in order.
func ignoreStops() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// sleepUntil sleeps without telling the Go scheduler, which would otherwise
// wake this thread for its own ends. For locked threads only.
//
//go:nosplit
func sleepUntil(at uint64) {
	ts := unix.Timespec{Sec: int64(at / 1e9), Nsec: int64(at % 1e9)}
	for {
		_, _, errno := syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC,
			unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

// sleepOnce sleeps like sleepUntil. It says when the thread ran again, and
// whether the kernel counts exactly one sleep and no preemption for it. No
// stack check between the clock and the counters lets the Go scheduler, who
// wants the thread back after a long sleep, add a sleep of its own.
//
//go:nosplit
func sleepOnce(at uint64) (end uint64, once bool) {
	slept, preempted := switches()
	sleepUntil(at)
	end = linux.Monotonic()
	sleptNow, preemptedNow := switches()
	return end, sleptNow == slept+1 && preemptedNow == preempted
}

// switches counts how often the thread slept and how often it was preempted.
//
//go:nosplit
func switches() (slept, preempted int64) {
	var usage unix.Rusage
	//nolint:errcheck // cannot fail for the own thread
	syscall.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&usage)), 0)
	return usage.Nvcsw, usage.Nivcsw
}

// spinUntil keeps the CPU. It has no place where the Go scheduler could take
// the thread away: no stack check, and asynchronous preemption is off in
// children. The clock is read every few microseconds only, so as not to flood
// a tracer with system calls.
//
//go:nosplit
func spinUntil(at uint64) {
	for linux.Monotonic() < at {
		for i := 0; i < 8192; i++ { //nolint:intrange // kept plain: the loop is the point
		}
	}
}

// spinThenYield spins, says when it ended, and leaves real-time scheduling. The Go
// scheduler, which wants the thread back after a long spin, may put it to sleep and wake
// it at once: with its priority it would preempt who waited for its CPU.
//
//go:nosplit
func spinThenYield(at uint64) (end uint64) {
	spinUntil(at)
	end = linux.Monotonic()
	var none int32 // struct sched_param
	//nolint:errcheck // a thread may always lower its priority
	syscall.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&none)))
	return end
}

// lockThread binds the goroutine to its thread for good and names the thread,
// and with it all that Go has started: later ones inherit the name. Without it
// they would be called exe, after /proc/self/exe.
func lockThread(comm string) error {
	runtime.LockOSThread()
	threads, _ := filepath.Glob("/proc/self/task/*/comm") // a constant pattern
	for _, thread := range threads {
		//nolint:errcheck // only the name of another thread
		os.WriteFile(thread, []byte(comm), 0)
	}
	return nameThread(comm)
}

func nameThread(comm string) error {
	name, err := unix.BytePtrFromString(comm)
	if err != nil {
		return fmt.Errorf("name a thread %q: %w", comm, err)
	}
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0); err != nil {
		return fmt.Errorf("name a thread %q: %w", comm, err)
	}
	return nil
}

// pinThread binds the thread to one CPU.
func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin a thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// realTime makes the thread SCHED_FIFO; threads made by it are ordinary ones.
func realTime(priority uint32) error {
	attr := unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_FIFO,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
		Priority: priority,
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("become SCHED_FIFO: %w (run as root with CAP_SYS_NICE, and not in a cgroup whose cpu.rt_runtime_us is 0)", err)
	}
	return nil
}
