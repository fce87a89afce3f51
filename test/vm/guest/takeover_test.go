package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/cpus"
	"github.com/tailcam/tailcam/test/support/provoke"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/pins"
)

// TestTakeover: see provoke.Takeover.
func TestTakeover(t *testing.T) {
	inGuest(t)
	provoke.Takeover(t, false, true, false) // 6.1 refuses to add a segment to a table
}

// TestTakeoverPrograms: the same by a daemon that needs other programs.
func TestTakeoverPrograms(t *testing.T) {
	inGuest(t)
	provoke.Takeover(t, false, true, true)
}

// succession are trackers that take over from each other.
type succession struct {
	t     *testing.T
	dir   string
	store pins.Store
	k     *tracker.Tracker
}

// next loads rules and says how many of their functions an earlier one had attached.
func (s *succession) next(list []rules.Rule, groups ...string) (taken int) {
	s.t.Helper()
	var err error
	s.store, err = pins.OpenDir(s.dir)
	assert.NilError(s.t, err)
	s.k, err = tracker.New(list, &tracker.Options{Groups: groups, Ring: 256 << 10, Tasks: 256, TrackSelf: true, Pins: s.store, Version: "test"})
	assert.NilError(s.t, err)
	taken = s.k.CallFunctions().Attached
	assert.NilError(s.t, s.k.Attach())
	s.k.AttachCalls(context.Background())
	now := s.k.CallFunctions()
	assert.Check(s.t, len(s.k.Inactive()) == 0 && now.Attached == now.Functions, "%+v, %v", now, s.k.Inactive())
	return taken
}

// leave ends a tracker as the death of its process does.
func (s *succession) leave() {
	s.t.Helper()
	s.k.Leave(true)
	assert.NilError(s.t, s.k.Close())
	assert.NilError(s.t, s.store.Close())
}

// pinned counts what is pinned of functions: programs, tables and links.
func (s *succession) pinned() int {
	s.t.Helper()
	names, err := s.store.Names()
	assert.NilError(s.t, err)
	return len(slices.DeleteFunc(names, func(name string) bool {
		return !strings.Contains(name, "-jump_call_") && !strings.HasPrefix(name, "link-call_")
	}))
}

// asleep is a sleep of a thread of this process.
type asleep struct {
	began, ended uint64
	done         chan struct{}
}

// startAsleep returns when the thread sleeps.
func startAsleep(t *testing.T, length time.Duration) *asleep {
	n := &asleep{done: make(chan struct{})}
	go func() {
		defer close(n.done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		assert.Check(t, cpus.BlockSignals())
		n.began = linux.Monotonic()
		pause := unix.NsecToTimespec(length.Nanoseconds())
		assert.Check(t, unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &pause, nil))
		n.ended = linux.Monotonic()
	}()
	time.Sleep(100 * time.Millisecond)
	return n
}

// told reads outliers until that of last, and reports whether one of n came before.
func (s *succession) told(n *asleep, last *asleep) bool {
	s.t.Helper()
	found := false
	for {
		o, err := s.k.Read()
		assert.NilError(s.t, err)
		of := func(n *asleep) bool { return o.StartMono >= n.began && o.EndMono <= n.ended }
		if of(last) {
			return found
		}
		assert.Check(s.t, !found || !of(n), "told twice: %+v", o)
		found = found || of(n)
	}
}

// TestTakeoverCalls: the functions of system calls that one process has attached to go on with
// what is pending in them, also if the next one needs other programs; not if some were not pinned, or
// the next one has no rule for them.
func TestTakeoverCalls(t *testing.T) {
	inGuest(t)
	needFunctions(t)
	mount := t.TempDir()
	assert.NilError(t, unix.Mount("bpf", mount, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	t.Cleanup(func() { assert.Check(t, unix.Unmount(mount, 0)) })
	list, err := rules.Parse(t.Name(), fmt.Appendf(nil, "rules: [{name: asleep, track: syscall, threshold: 300ms, "+
		"when: {pid: [%d], syscall: [clock_nanosleep, getppid, fsync]}}, {name: other, track: offcpu, threshold: 1h}]", os.Getpid()), &rules.LocalMachine{})
	assert.NilError(t, err)
	const longer = 15 * time.Second // than a takeover takes
	s := &succession{t: t, dir: filepath.Join(mount, "pins")}
	assert.Check(t, s.next(list, "sched") == 0)
	pinned := s.pinned()
	assert.Check(t, pinned >= 3*2*2+2, "%d are pinned", pinned)

	// The next one has the same programs, then others; the call ends before it, then after.
	for i, groups := range [][]string{{"sched"}, {"sched", "workqueue"}} {
		length := time.Second
		if i == 1 {
			length = longer
		}
		n := startAsleep(t, length)
		s.leave()
		if i == 0 {
			<-n.done
		}
		assert.Check(t, s.next(list, groups...) == 3)
		<-n.done
		how := s.k.Takeover()
		assert.Check(t, how.Taken && (how.Programs != "") == (i == 1), "%+v", how)
		last := startAsleep(t, 500*time.Millisecond)
		<-last.done
		assert.Check(t, s.told(n, last), "what was pending is not told")
		assert.Check(t, s.pinned() == pinned, "%d are pinned, before %d", s.pinned(), pinned)
	}

	// Some may not have been pinned.
	n := startAsleep(t, longer)
	assert.NilError(t, s.store.Remove("state-calls"))
	s.leave()
	assert.Check(t, s.next(list, "sched") == 3)
	<-n.done
	last := startAsleep(t, 500*time.Millisecond)
	<-last.done
	assert.Check(t, !s.told(n, last), "what was pending is told, although its end could have been missed")

	// No rule is for them, then again.
	n = startAsleep(t, longer)
	s.leave()
	assert.Check(t, s.next(list[1:], "sched") == 0 && s.k.Takeover().Taken && s.pinned() == 0, "%d are pinned: %+v", s.pinned(), s.k.Takeover())
	s.leave()
	<-n.done
	assert.Check(t, s.next(list, "sched") == 0 && s.k.Takeover().Taken && s.pinned() == pinned, "%d are pinned: %+v", s.pinned(), s.k.Takeover())
	last = startAsleep(t, 500*time.Millisecond)
	<-last.done
	assert.Check(t, !s.told(n, last), "what was pending is told, although its end was missed")

	s.k.Leave(false)
	assert.NilError(t, s.k.Close())
	left, err := os.ReadDir(s.dir)
	assert.Check(t, err == nil && len(left) == 0, "%v stay: %v", left, err)
	assert.NilError(t, s.store.Close())
}
