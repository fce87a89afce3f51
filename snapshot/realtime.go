package snapshot

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// RealTime keeps the calling goroutine on its thread, and gives that thread a
// real-time priority, 1 to 99 (SCHED_FIFO). It is not handed on to what the
// thread starts, and never taken back: the thread ends with the goroutine. Needs
// CAP_SYS_NICE.
func RealTime(priority int) error {
	runtime.LockOSThread()
	err := unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(priority), Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("set the priority of the snapshot thread to %d: %w (it needs CAP_SYS_NICE, and under systemd RestrictRealtime=no; or set snapshots.rt_priority: 0)", priority, err)
	}
	if err != nil {
		return fmt.Errorf("set the priority of the snapshot thread to %d: %w (allowed are 1 to 99)", priority, err)
	}
	return nil
}
