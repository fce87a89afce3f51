package linux

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clocks of processes and threads: see pthread_getcpuclockid(3).
const (
	clockSched  = 2 // CPUCLOCK_SCHED
	clockThread = 4 // CPUCLOCK_PERTHREAD_MASK
)

// ProcessCPU is the CPU time of a process; 0: it has ended. It may be called concurrently.
func ProcessCPU(pid int) time.Duration { return cpuTime(int32(^pid<<3 | clockSched)) }

// ThreadCPU is the CPU time of a thread of this process; 0: it has ended. It may be
// called concurrently.
func ThreadCPU(tid int) time.Duration { return cpuTime(int32(^tid<<3 | clockThread | clockSched)) }

func cpuTime(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
