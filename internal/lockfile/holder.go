package lockfile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder returns the pid of the process that holds the lock of a file, without taking it
// for a moment; 0: none does, or it is not known. The error is that of opening the file.
func Holder(path string) (pid int, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return holder(f), nil
}

// holder returns the pid of the lock's holder from /proc/locks, or else as written by
// the holder, since /proc/locks has another device number for some file systems. 0:
// unknown.
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
		return 0 // the pid was reused
	}
	return pid
}

// listed finds a lock on the file in /proc/locks.
func listed(locks string, st *unix.Stat_t) int {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(locks) {
		// 1: FLOCK ADVISORY WRITE 4711 fe:00:1234 0 EOF; waiters have "->" before FLOCK
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

// isDying reports whether a process was killed or has exited, but has threads that the
// kernel cannot end yet. A stopped process is alive.
func isDying(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		// Exited and reaped: a thread or another process with the descriptor keeps the
		// lock.
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

// started returns the start time of a process in ticks since boot, "" if it is gone.
func started(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// pid (comm) state …: comm may contain anything, so parse from the last
	// parenthesis.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}
