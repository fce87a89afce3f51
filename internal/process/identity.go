package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// tick is the unit of start times in procfs: USER_HZ is 100 wherever Linux runs.
const tick = 10 * time.Millisecond

// errExiting says that a process is there no more, or not for long.
var errExiting = fmt.Errorf("it is exiting: %w", fs.ErrNotExist)

// Seen is a task that somebody has seen, some time ago.
type Seen struct {
	PID  int
	TID  int    // 0: any thread. The first one may have ended before the others
	Comm string // of the thread; empty: not known
	At   uint64 // nanoseconds of CLOCK_MONOTONIC; 0: now
}

// Identity returns who process pid is. If the process has exited it returns
// what was known of it in the last Options.TTL, or an error that wraps
// fs.ErrNotExist. A command line that cannot be read in time is left empty.
func (t *Table) Identity(pid int) (Identity, error) { return t.IdentityOf(Seen{PID: pid}) }

// IdentityOf returns who a task is that was seen. Who runs under its pid by now
// may be somebody else: a process that began after the task was seen is not
// taken for it, nor is one that had ended before. What was read while the
// process ended or began another program is left out: its cgroup by then may be
// the root, its command line that of either program. Otherwise it is Identity.
//
// A process begins with the tick of 10 ms in which it was forked.
func (t *Table) IdentityOf(s Seen) (Identity, error) {
	who, err := t.identify(s)
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", s.PID, err)
	}
	return who, nil
}

func (t *Table) identify(s Seen) (Identity, error) {
	if s.PID <= 0 {
		return Identity{}, fs.ErrNotExist
	}
	known, ok := t.identities.Load(s.PID)
	ok = ok && time.Now().Before(known.until) && known.may(s)

	p, err := t.read(s.PID)
	if err != nil {
		if ok {
			return known.who, nil // it has exited or hangs; this is what it was
		}
		return Identity{}, err
	}
	defer p.dir.Close()
	if s.At != 0 && p.now.beganAfter(s.At) {
		if ok && known.life.start != p.now.start {
			return known.who, nil
		}
		return Identity{}, fmt.Errorf("another process has its pid by now: %w", fs.ErrNotExist)
	}
	if ok && known.life == p.now.life {
		known.seen = linux.Monotonic()
		t.identities.Store(s.PID, known)
		return known.who, nil
	}
	if p.now.exiting {
		if known.life == p.now.life && known.may(s) {
			return known.who, nil // however long ago
		}
		return t.ofThread(s, p, known)
	}
	return t.renew(s.PID, p.now, known, t.patiently(s.PID, p.now.life, p.dir))
}

// ofThread identifies a process whose first thread has ended by another one.
func (t *Table) ofThread(s Seen, p present, known remembered) (Identity, error) {
	if s.TID == 0 || s.TID == s.PID {
		return Identity{}, errExiting
	}
	dir, err := os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(s.PID), "task", strconv.Itoa(s.TID)))
	if err != nil {
		return Identity{}, err
	}
	defer dir.Close()
	now, err := stateOf(t.patiently(s.TID, life{}, dir))
	if err != nil {
		return Identity{}, err
	}
	ask := t.patiently(s.TID, now.life, dir)
	if now.exiting {
		return Identity{}, errExiting
	}
	who, _, err := t.describeAlive(now, known, ask)
	if err != nil {
		return Identity{}, err
	}
	// Under the first thread's life, which is what is asked for first.
	if who.Cmdline != "" {
		t.remember(s.PID, p.now.life, who)
	}
	return who, nil
}

// may tells whether what is remembered can be about a task: it was there
// before, and either it still was when the task was seen, or it has its name.
func (r remembered) may(s Seen) bool {
	return s.At == 0 || !r.life.beganAfter(s.At) && (s.At <= r.seen || s.Comm == "" || s.Comm == r.life.comm)
}

// beganAfter tells whether a process began after a time of CLOCK_MONOTONIC.
// That clock stands still while the machine is suspended, so that this errs
// towards no.
func (l life) beganAfter(at uint64) bool {
	var boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || l.start > 1<<40 {
		return false
	}
	suspended := max(boot.Nano()-int64(linux.Monotonic()), 0)
	return int64(l.start)*int64(tick)-suspended > int64(min(at, 1<<62))
}

func stateOf(ask asker) (state, error) {
	text, err := ask("stat", maxStat)
	if err != nil {
		return state{}, err
	}
	return parseStat(text)
}

// renew asks who a process is, and remembers it.
func (t *Table) renew(pid int, now state, known remembered, ask asker) (Identity, error) {
	if now.exiting {
		return Identity{}, errExiting
	}
	who, now2, err := t.describeAlive(now, known, ask)
	if err != nil {
		return Identity{}, err
	}
	// In the middle of exec a program has no command line yet: ask again then.
	if now2.complete && (who.Cmdline != "" || now.kernel) {
		t.remember(pid, now2.life, who)
	}
	return who, nil
}

// described is the life that an identity is of.
type described struct {
	life
	complete bool // all of it is known
}

// describeAlive reads the identity of a process, and then whether it is still
// the same program.
func (t *Table) describeAlive(now state, known remembered, ask asker) (Identity, described, error) {
	for again := false; ; again = true {
		who, complete, err := describe(ask)
		if err != nil {
			return Identity{}, described{}, err
		}
		after, err := stateOf(ask)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return who, described{life: now.life}, nil // it does not answer; what it said counts
		case err == nil && !after.exiting && after.life == now.life:
			if who.Cmdline == "" && known.life == now.life {
				who.Cmdline = known.who.Cmdline
			}
			return who, described{now.life, complete}, nil
		case err == nil && !after.exiting && after.start == now.start && !again:
			now = after // it began another program meanwhile
			continue
		}
		if known.life == now.life {
			return known.who, described{life: now.life}, nil
		}
		// It has ended meanwhile, and what was read last may not be its own any more.
		who.Cgroup, who.Container = "", ""
		if err == nil && !after.exiting {
			who.Cmdline = "" // one program after the other: of which is it?
		}
		return who, described{life: now.life}, nil
	}
}

func (t *Table) remember(pid int, l life, who Identity) {
	t.identities.Store(pid, remembered{l, who, time.Now().Add(t.opts.TTL), linux.Monotonic()})
	t.trimIdentities()
}
