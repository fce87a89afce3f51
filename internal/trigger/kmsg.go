package trigger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
)

const (
	kmsgFile = "/dev/kmsg"
	// maxMessage exceeds what the kernel ever returns: PRINTKRB_RECORD_MAX (2048 bytes)
	// escaped fourfold, and the dictionary.
	maxMessage = 32 << 10
	maxNotice  = 300 // bytes of a message that are passed on
)

// kmsg reads the kernel's log from now on. See Documentation/ABI/testing/dev-kmsg.
type kmsg struct {
	file *os.File
	want map[rules.KernelMessage]bool
	lost func(uint64)
	last uint64 // sequence number; 0: none yet
	oom  oomVictim
}

// oomVictim is what the summary before the message of a kill tells.
type oomVictim struct {
	pid    int
	cgroup string
}

func openKmsg(want []rules.KernelMessage, lost func(uint64)) (source, error) {
	f, err := os.OpenFile(kmsgFile, os.O_RDONLY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("read the kernel's log: %w: needs CAP_SYSLOG", err)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("read the kernel's log: %w: with systemd, install the drop-in triggers.conf", err)
	case err != nil:
		return nil, fmt.Errorf("read the kernel's log: %w", err)
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("read the kernel's log: %w", err)
	}
	k := &kmsg{file: f, want: map[rules.KernelMessage]bool{}, lost: lost}
	for _, w := range want {
		k.want[w] = true
	}
	return k, nil
}

func (k *kmsg) close() { _ = k.file.Close() }

// watch reads one record a call, as the kernel returns them.
func (k *kmsg) watch(ctx context.Context, fire func(*Event)) error {
	defer context.AfterFunc(ctx, func() { _ = k.file.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, maxMessage)
	for {
		n, err := k.file.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EPIPE): // overwritten: the next read has the oldest that is left
			continue
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		if ev := k.record(buf[:n]); ev != nil {
			fire(ev)
		}
	}
}

// record parses a record: "level,sequence,microseconds,flags;text", and lines with what
// else is known. Messages of user space have another facility than 0, whatever they claim.
func (k *kmsg) record(raw []byte) *Event {
	head, rest, ok := bytes.Cut(raw, []byte{';'})
	fields := strings.Split(string(head), ",")
	if !ok || len(fields) < 3 {
		return nil
	}
	level, err := strconv.ParseUint(fields[0], 10, 32)
	seq, err2 := strconv.ParseUint(fields[1], 10, 64)
	if err != nil || err2 != nil {
		return nil
	}
	if k.last != 0 && seq > k.last+1 {
		k.lost(seq - k.last - 1)
	}
	k.last = seq
	if level>>3 != 0 {
		return nil
	}
	text, _, _ := bytes.Cut(rest, []byte{'\n'})
	kind, ev := k.parse(string(text))
	if ev == nil || !k.want[kind] {
		return nil
	}
	return ev
}

// Messages of the kernel, as of 6.1 to 6.18. Names of tasks may contain anything that
// fits into 15 bytes; what is not printable is escaped.
var (
	// kernel/hung_task.c, check_hung_task
	hungTask = regexp.MustCompile(`^INFO: task (.{1,60}):(\d{1,10}) (?:<[a-z]+> )?blocked (?:in I/O wait )?for more than (\d{1,9}) seconds`)
	// kernel/watchdog.c, watchdog_timer_fn
	softLockup = regexp.MustCompile(`^watchdog: BUG: soft lockup - CPU#(\d{1,6}) stuck for (\d{1,9})s! \[(.{1,60}):(\d{1,10})\]`)
	// kernel/watchdog.c, watchdog_hardlockup_check; before 6.5 kernel/watchdog_hld.c
	hardLockup = regexp.MustCompile(`^(?:NMI )?[Ww]atchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu (\d{1,6})`)
	// kernel/rcu/tree_stall.h
	rcuStall = regexp.MustCompile(`^rcu: INFO: \w{1,30} (?:self-)?detected (?:expedited )?stalls? on CPU`)
	// mm/oom_kill.c, dump_oom_victim and __oom_kill_process
	oomSummary = regexp.MustCompile(`^oom-kill:constraint=.*,task_memcg=(/.*),task=.{0,60},pid=(\d{1,10}),uid=\d+$`)
	oomKill    = regexp.MustCompile(`^(?:Memory cgroup out|Out) of memory(?: \([^)]*\))?: Killed process (\d{1,10}) \((.{0,60})\),? (?:UID|total-vm)`)
)

// parse returns what a message means, or nil.
func (k *kmsg) parse(text string) (kind rules.KernelMessage, ev *Event) {
	ev = &Event{Reason: notice(text)}
	if m := hungTask.FindStringSubmatch(text); m != nil {
		ev.Task, ev.Time = &Task{TID: number(m[2]), Comm: m[1]}, seconds(m[3])
		return rules.HungTask, ev
	}
	if m := softLockup.FindStringSubmatch(text); m != nil {
		ev.Task, ev.Time = &Task{TID: number(m[4]), Comm: m[3]}, seconds(m[2])
		return rules.SoftLockup, ev
	}
	if m := oomKill.FindStringSubmatch(text); m != nil {
		pid := number(m[1])
		ev.Task = &Task{PID: pid, TID: pid, Comm: m[2]}
		if k.oom.pid == pid {
			ev.Task.Cgroup = k.oom.cgroup
		}
		return rules.OutOfMemory, ev
	}
	if m := oomSummary.FindStringSubmatch(text); m != nil {
		k.oom = oomVictim{number(m[2]), m[1]}
		return "", nil
	}
	switch {
	case hardLockup.MatchString(text):
		return rules.HardLockup, ev
	case rcuStall.MatchString(text):
		return rules.RCUStall, ev
	}
	return "", nil
}

// notice shortens a message.
func notice(text string) string {
	if len(text) > maxNotice {
		text = strings.ToValidUTF8(text[:maxNotice], "") + "…"
	}
	return text
}

// number is at most that of a task.
func number(digits string) int {
	n, _ := strconv.ParseUint(digits, 10, 31)
	return int(n)
}

// maxBlocked bounds the time that a message may claim.
const maxBlocked = 24 * time.Hour

func seconds(digits string) time.Duration {
	n, _ := strconv.ParseUint(digits, 10, 31)
	return min(time.Duration(n)*time.Second, maxBlocked)
}
