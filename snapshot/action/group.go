package action

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killGrace is the minimum time that killed processes get to exit, on a busy machine.
const killGrace = 5 * time.Second

// groupPoll is how often a process group that was signaled is checked.
const groupPoll = 50 * time.Millisecond

// awaitGroup waits until only the unreaped leader is left of the process group, or for
// the grace time. The leader often ends first, as a shell does while its rsync cleans
// up.
func awaitGroup(leader int, exited <-chan struct{}, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-exited:
	case <-timer.C:
		return
	}
	tick := time.NewTicker(groupPoll)
	defer tick.Stop()
	for groupAlive(leader) {
		select {
		case <-tick.C:
		case <-timer.C:
			return
		}
	}
}

// groupAlive reports whether the group has a living process. Signal 0 would also count
// the unreaped leader.
func groupAlive(group int) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return false
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // gone
		}
		// pid (comm) state ppid pgrp …: comm may contain anything, so parse from the
		// last parenthesis.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) < 3 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
			continue
		}
		if n, err := strconv.Atoi(string(fields[2])); err == nil && n == group {
			return true
		}
	}
	return false
}

// waitUnreaped returns when the child has ended, without reaping it.
func waitUnreaped(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// signalGroup fails only if the group is empty.
func signalGroup(pid int, sig unix.Signal) { _ = unix.Kill(-pid, sig) }
