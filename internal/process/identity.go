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

// tick is the unit of start times in procfs: USER_HZ is always 100.
const tick = 10 * time.Millisecond

// errExiting means that a process has exited or is exiting.
var errExiting = fmt.Errorf("it is exiting: %w", fs.ErrNotExist)

// Seen is a task observed at some time.
type Seen struct {
	PID  int
	TID  int    // 0: any thread
	Comm string // name of the thread; "": unknown
	At   uint64 // nanoseconds of CLOCK_MONOTONIC; 0: now
}

// Identity returns the identity of process pid. If it has exited, Identity returns what
// was known within Options.Keep, or an error wrapping fs.ErrNotExist. A command line
// that cannot be read in time is left empty.
func (t *Table) Identity(pid int) (Identity, error) { return t.IdentityOf(Seen{PID: pid}) }

// IdentityOf returns the identity of an observed task. It ignores processes that reuse
// its pid: those that started after, or exited before, the observation. Data read while
// the process exits or executes another program is left out. Otherwise it is like
// Identity.
//
// Start times have a resolution of 10 ms.
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
	ok = ok && t.kept(&known) && known.mayBe(s)

	p, err := t.read(s.PID)
	if err != nil {
		if ok {
			return known.who, nil // exited or hung: use the cache
		}
		return Identity{}, err
	}
	defer p.dir.Close()
	if s.At != 0 && p.now.beganAfter(s.At) {
		if ok && known.life.start != p.now.start {
			return known.who, nil
		}
		return Identity{}, fmt.Errorf("pid reused by another process: %w", fs.ErrNotExist)
	}
	if ok && known.life == p.now.life && time.Now().Before(known.until) {
		known.seen = linux.Monotonic()
		t.identities.Store(s.PID, known)
		return known.who, nil
	}
	if p.now.exiting {
		if known.life == p.now.life && known.mayBe(s) {
			return known.who, nil // regardless of age
		}
		return t.ofThread(s, p, known)
	}
	return t.renew(s.PID, p.now, known, t.withTimeout(s.PID, p.now.life, p.dir))
}

// ofThread identifies a process through another thread if its first thread has exited.
func (t *Table) ofThread(s Seen, p openProcess, known remembered) (Identity, error) {
	if s.TID == 0 || s.TID == s.PID {
		return Identity{}, errExiting
	}
	dir, err := os.Open(filepath.Join(t.opts.Proc, strconv.Itoa(s.PID), "task", strconv.Itoa(s.TID)))
	if err != nil {
		return Identity{}, err
	}
	defer dir.Close()
	now, err := stateOf(t.withTimeout(s.TID, life{}, dir))
	if err != nil {
		return Identity{}, err
	}
	ask := t.withTimeout(s.TID, now.life, dir)
	if now.exiting {
		return Identity{}, errExiting
	}
	who, _, err := t.describeAlive(now, known, ask)
	if err != nil {
		return Identity{}, err
	}
	// Stored for the first thread, which is looked up first.
	if who.Cmdline != "" {
		t.remember(s.PID, p.now.life, who)
	}
	return who, nil
}

// mayBe reports whether a cached identity may be that of an observed task: the process
// existed before, and it still existed at that time or has the same name.
func (r remembered) mayBe(s Seen) bool {
	return s.At == 0 || !r.life.beganAfter(s.At) && (s.At <= r.seen || s.Comm == "" || s.Comm == r.life.comm)
}

// beganAfter reports whether a process started after a time of CLOCK_MONOTONIC. As that
// clock stops during suspend, the answer may wrongly be no.
func (l life) beganAfter(at uint64) bool {
	var boot unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || l.start > 1<<40 {
		return false
	}
	suspended := max(boot.Nano()-int64(linux.Monotonic()), 0)
	return int64(l.start)*int64(tick)-suspended > int64(min(at, 1<<62))
}

func stateOf(ask fileReader) (state, error) {
	text, err := ask("stat", maxStat)
	if err != nil {
		return state{}, err
	}
	return parseStat(text)
}

// renew reads an identity and caches it.
func (t *Table) renew(pid int, now state, known remembered, ask fileReader) (Identity, error) {
	if now.exiting {
		return Identity{}, errExiting
	}
	who, now2, err := t.describeAlive(now, known, ask)
	if err != nil {
		return Identity{}, err
	}
	// During exec the command line is empty: read it again later.
	if now2.complete && (who.Cmdline != "" || now.kernel) {
		t.remember(pid, now2.life, who)
	}
	return who, nil
}

// lifeOf is the process an identity belongs to.
type lifeOf struct {
	life
	complete bool // nothing is missing
}

// describeAlive reads an identity and checks that the process is still the same.
func (t *Table) describeAlive(now state, known remembered, ask fileReader) (Identity, lifeOf, error) {
	for again := false; ; again = true {
		who, complete, err := describe(ask, now.comm)
		if err != nil {
			return Identity{}, lifeOf{}, err
		}
		after, err := stateOf(ask)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return who, lifeOf{life: now.life}, nil // no answer: keep what was read
		case err == nil && !after.exiting && after.life == now.life:
			if who.Cmdline == "" && known.life == now.life {
				who.Cmdline, who.Title = known.who.Cmdline, known.who.Title
			}
			return who, lifeOf{now.life, complete}, nil
		case err == nil && !after.exiting && after.start == now.start && !again:
			now = after // executed another program
			continue
		}
		if known.life == now.life {
			return known.who, lifeOf{life: now.life}, nil
		}
		// It has exited; the last values may not be its own.
		who.Cgroup, who.Container = "", ""
		if err == nil && !after.exiting {
			who.Cmdline, who.Title = "", "" // may belong to either program
		}
		return who, lifeOf{life: now.life}, nil
	}
}

// kept reports whether a cached identity still counts if the process has exited.
func (t *Table) kept(r *remembered) bool { return time.Now().Before(r.until.Add(t.opts.Keep)) }

func (t *Table) remember(pid int, l life, who Identity) {
	t.identities.Store(pid, remembered{l, who, time.Now().Add(t.opts.TTL), linux.Monotonic()})
	t.trimIdentities()
}
