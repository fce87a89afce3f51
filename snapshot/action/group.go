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

// killGrace is the least time that a killed process is given to go: a busy
// machine may take a second over it.
const killGrace = 5 * time.Second

// groupPoll is how often a group that was told to end is looked at.
const groupPoll = 50 * time.Millisecond

// awaitGroup waits until nobody of the process group is left but its unreaped
// leader, or the grace time is over. The leader often ends first: a shell does
// so while its rsync still tidies up.
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

// groupAlive looks for a living process of the group. The kernel's own way to
// ask (signal 0) also counts the unreaped leader.
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
		// pid (comm) state ppid pgrp …; comm may hold anything, so count from
		// its last parenthesis.
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

// waitUnreaped returns when the child has ended, and leaves it to be reaped.
func waitUnreaped(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// signalGroup fails only if nobody is left.
func signalGroup(pid int, sig unix.Signal) { _ = unix.Kill(-pid, sig) }
