package snapshot

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// RealTime locks the calling goroutine to its thread and makes that thread SCHED_FIFO
// with a priority of 1 to 99. Children do not inherit it, and it cannot be undone: the
// thread ends with the goroutine. Needs CAP_SYS_NICE.
func RealTime(priority int) error {
	runtime.LockOSThread()
	err := unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(priority), Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("set the priority of the snapshot thread to %d: %w (needs CAP_SYS_NICE or, under systemd, LimitRTPRIO=%d; or set snapshots.rt_priority: 0)", priority, err, priority)
	}
	if err != nil {
		return fmt.Errorf("set the priority of the snapshot thread to %d: %w (allowed are 1 to 99)", priority, err)
	}
	return nil
}
