package lockfile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holder finds who has a lock: the kernel's list first, then what the holder has
// written, as file systems with several devices are listed under another number.
// 0 is nobody that can be named.
func holder(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err == nil {
		if pid := listed(string(locks), &st); pid > 0 {
			return pid
		}
	}
	buf := make([]byte, 64)
	n, err := f.ReadAt(buf, 0)
	fields := strings.Fields(string(buf[:n]))
	if n == 0 && err != nil || len(fields) == 0 {
		return 0
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 0 || len(fields) > 1 && started(pid) != fields[1] {
		return 0 // another process has the number now
	}
	return pid
}

// listed looks for a lock on the file in /proc/locks.
func listed(locks string, st *unix.Stat_t) int {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(locks) {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF; "->" before the kind: it waits
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != want {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil {
			return pid
		}
	}
	return 0
}

// isDying says that a process has ended but for threads that the kernel does not
// let go, or was killed and has not ended yet. One that is stopped is alive.
func isDying(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		// Ended and reaped: a thread of it, or who has inherited the file, keeps the lock.
		return os.IsNotExist(err)
	}
	const killed = 1 << (unix.SIGKILL - 1)
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if set, err := strconv.ParseUint(value, 16, 64); err == nil && set&killed != 0 {
				return true
			}
		}
	}
	return false
}

// started is when a process was, in ticks since boot; empty if it is gone.
func started(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// pid (comm) state …: comm may hold anything, so count from its last parenthesis.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}
