package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Thread is a thread as it is now.
type Thread struct {
	Task
	State   string // interruptible, uninterruptible; runnable: runs, or could; other
	Syscall int    // that it sleeps in; -1: none, or unknown
}

const maxSyscallFile = 512 // bytes of /proc/TID/syscall

// Thread describes a thread of a process; pid 0: of whichever. It fails with an error
// that wraps fs.ErrNotExist if there is none, and gives up after Options.Timeout. What
// it sleeps in needs CAP_SYS_PTRACE.
func (t *Table) Thread(pid, tid int) (Thread, error) {
	found := t.Tasks([]int{tid}, t.opts.Timeout)
	if len(found) == 0 {
		return Thread{}, fmt.Errorf("thread %d: %w", tid, fs.ErrNotExist)
	}
	th := Thread{Task: found[0], Syscall: -1}
	if pid != 0 && th.PID != pid {
		return Thread{}, fmt.Errorf("thread %d of process %d (it is one of process %d): %w", tid, pid, th.PID, fs.ErrNotExist)
	}
	dir, err := os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(tid)))
	if err != nil {
		return Thread{}, fmt.Errorf("thread %d: %w", tid, gone(err))
	}
	defer dir.Close()
	stat, err := t.readWithin(tid, dir, "stat", maxStat)
	if err != nil {
		return Thread{}, fmt.Errorf("thread %d: %w", tid, err)
	}
	th.State = stateName(stat)
	if call, err := t.readWithin(tid, dir, "syscall", maxSyscallFile); err == nil {
		th.Syscall = callNumber(string(call))
	}
	return th, nil
}

// stateName is the state in /proc/TID/stat in the words of outliers.
func stateName(stat []byte) string {
	rest := bytes.TrimLeft(stat[bytes.LastIndexByte(stat, ')')+1:], " ")
	switch {
	case len(rest) == 0:
		return ""
	case rest[0] == 'R':
		return "runnable"
	case rest[0] == 'S':
		return "interruptible"
	case rest[0] == 'D':
		return "uninterruptible"
	}
	return "other"
}

// callNumber parses /proc/TID/syscall: a number and its arguments, -1 outside of a
// call, or "running".
func callNumber(text string) int {
	number, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	if n, err := strconv.Atoi(number); err == nil && n >= 0 {
		return n
	}
	return -1
}
