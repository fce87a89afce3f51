package tracker

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
)

// initPIDNamespace is the inode of the machine's own pid namespace
// (include/linux/proc_ns.h, PROC_PID_INIT_INO).
const initPIDNamespace = 0xEFFFFFFC

// Reclaim frees the places of threads that are gone without their last switch
// having been seen, and of spans that nobody ends, and returns how many. It
// reads the whole table; once a minute is often enough. In a pid namespace of
// its own it knows no threads: the kernel side's thread ids mean nothing there.
func (t *Tracker) Reclaim() (int, error) {
	expired, err := t.reclaimSpans()
	if err != nil {
		return expired, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return expired, fmt.Errorf("look at the pid namespace: %w", err)
	}
	if st.Ino != initPIDNamespace {
		return expired, nil
	}
	reclaimed, err := t.reclaimPairs()
	reclaimed += expired
	if err != nil {
		return reclaimed, err
	}
	for _, track := range []rules.Track{rules.Wakeup, rules.Syscall, rules.Chain} {
		keys, err := t.PendingKeys(track)
		if err != nil {
			return reclaimed, err
		}
		for _, tid := range keys {
			if !errors.Is(unix.Kill(int(tid), 0), unix.ESRCH) {
				continue
			}
			arg := struct{ TID uint32 }{uint32(tid)}
			if _, err := t.objects.Programs["forget_thread"].Run(&ebpf.RunOptions{Context: arg}); err != nil {
				return reclaimed, fmt.Errorf("forget thread %d: %w", tid, err)
			}
			reclaimed++
		}
	}
	return reclaimed, nil
}
