package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stack copies a thread's stack from sp on into buf, as much as there is. The thread
// started at start, in clock ticks since boot, and had left its CPU switches times.
// exact: it has not run since, and sleeps. The memory may be mapped from any file, so
// this may hang. Needs CAP_SYS_PTRACE.
func Stack(pid, tid int, start, sp, switches uint64, buf []byte) (data []byte, exact bool, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(tid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, false, errors.New("the thread has exited")
	}
	if err != nil {
		return nil, false, err
	}
	if now, err := StartTime(stat); err != nil || now != start {
		return nil, false, errors.New("the thread has exited, and its id was reused")
	}
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	remote := []unix.RemoteIovec{{Base: uintptr(sp), Len: len(buf)}}
	n, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if err != nil {
		return nil, false, fmt.Errorf("read its stack: %w", err)
	}
	// After the memory: if it sleeps as it did then, it slept meanwhile.
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	return buf[:n], err == nil && sleepsStill(string(status), switches), nil
}

// sleepsStill tells from /proc/PID/task/TID/status whether a thread that had left its CPU
// switches times has not run since.
func sleepsStill(status string, switches uint64) bool {
	var sum uint64
	asleep := false
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			asleep = !strings.HasPrefix(value, "R")
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return false
			}
			sum += n
		}
	}
	return asleep && sum == switches
}
