package detect

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/tracker"
)

// rareCall is a system call that blocks and that no other program makes:
// epoll_pwait2 (linux/asm-generic/unistd.h).
const rareCall = 441

// rare makes a thread sit in one rare call for d, or until a signal of the Go
// runtime ends it: it is one call either way.
func rare(t *testing.T, fd int, d time.Duration) {
	var event unix.EpollEvent
	ts := unix.NsecToTimespec(int64(d))
	_, _, errno := unix.Syscall6(rareCall, uintptr(fd), uintptr(unsafe.Pointer(&event)), 1,
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	assert.Check(t, errno == 0 || errno == unix.EINTR, "%v", errno)
}

// A table with eight places and sixty threads that want one: each call is
// either seen or counted as lost, and nothing is reported that did not happen.
func TestTableTooSmall(t *testing.T) {
	const workers, rounds = 60, 20
	c := load(t, []rules.Rule{{
		Name: "rare", Track: rules.Syscall, Attach: rules.AttachAll, Threshold: 5 * time.Millisecond,
		When: rules.Match{Syscall: []int{rareCall}, PID: []uint32{uint32(os.Getpid())}},
	}}, &tracker.Options{Syscalls: 8, TrackSelf: true})
	c.read()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	assert.NilError(t, err)
	defer unix.Close(fd)
	var made sync.Mutex
	calls := uint64(0)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			runtime.LockOSThread()
			for range rounds {
				rare(t, fd, 10*time.Millisecond)
				made.Lock()
				calls++
				made.Unlock()
			}
		})
	}
	wg.Wait()
	c.arrived()
	k := c.counters()
	n := k.Trackers[rules.Syscall]
	t.Logf("%d calls: %d seen, %d lost as the table was full; rule: %+v", calls, n.Seen, n.TableFull, k.Rules["rare"])
	assert.Check(t, n.Seen+n.TableFull == calls && n.Replaced == 0,
		"%d calls: %d seen, %d lost, %d replaced", calls, n.Seen, n.TableFull, n.Replaced)
	assert.Check(t, n.TableFull != 0 && n.Seen >= rounds,
		"%d seen, %d lost: want some of both", n.Seen, n.TableFull)
	r := k.Rules["rare"]
	assert.Check(t, r.Outliers <= n.Seen && r.Outliers != 0, "%d outliers of %d seen calls", r.Outliers, n.Seen)
	for _, o := range c.outliers {
		assert.Check(t, o.Syscall.NR == rareCall && o.Task.PID == os.Getpid(),
			"reported %+v of %+v", o.Syscall, o.Task)
	}
	keys := c.pending(rules.Syscall)
	assert.Check(t, len(keys) == 0, "pending in the end: %v", keys)
}

// The same for sleeping threads, whose table others use too: what is reported
// is right, what is lost is counted.
func TestTaskTableTooSmall(t *testing.T) {
	c := watch(t, []rules.Rule{
		{Name: "offcpu", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-offcpu"}}},
		{Name: "wakeup", Track: rules.Wakeup, Threshold: time.Hour},
	}, &tracker.Options{Tasks: 64})
	events := inject.Run(t, "offcpu", "sleep", "1000", micros(over), "0", "1", "200")
	c.arrived()
	n := c.counters().Trackers[rules.OffCPU]
	l := c.balance(t, threshold, events, c.outliers, "offcpu")
	reported := 0
	for _, p := range l.pairs {
		reported += len(p.reports)
		assert.Check(t, (len(p.reports) <= 1 || p.Kind == inject.Spoilt) && (!l.mustNot(p) || len(p.reports) == 0),
			"reported %d times: %+v", len(p.reports), p.Event)
	}
	for _, o := range l.strays {
		t.Errorf("reported but not injected: %v of %+v from %d on", time.Duration(o.DelayNS), o.Task, o.StartMono)
	}
	must := 0
	for _, p := range l.pairs {
		if l.must(p) {
			must++
		}
	}
	t.Logf("of %d injected %d reported; %d entries lost, %d seen", must, reported, n.TableFull, n.Seen)
	assert.Check(t, n.TableFull+uint64(c.unseenOf(events)) >= uint64(must-reported) && reported != 0 &&
		n.TableFull != 0, "of %d injected %d reported, but only %d entries lost", must, reported, n.TableFull)
}

// A ring buffer of a few outliers that no one reads: each outlier is either in
// it, and counted, or counted as lost.
func TestRingTooSmall(t *testing.T) {
	c := load(t, []rules.Rule{
		{Name: "first", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-offcpu"}}},
		{Name: "second", Track: rules.OffCPU, Threshold: threshold, When: rules.Match{Comm: []string{"inj-off*"}}},
	}, &tracker.Options{Buffer: 128 << 10})
	events := inject.Run(t, "offcpu", "sleep", "200", micros(over), "100", micros(under), "32")
	k := c.counters()
	// Only now someone reads; what was lost stays lost.
	c.read()
	c.arrived()
	var total, lost uint64
	for name, r := range k.Rules {
		l := c.balance(t, threshold, events, c.outliers, name)
		must, either := uint64(0), uint64(0)
		for _, p := range l.pairs {
			if l.must(p) {
				must++
			} else if !l.mustNot(p) {
				either += 1 + uint64(max(0, len(p.reports)-1))
			}
			assert.Check(t, len(p.reports) <= 1 || p.Kind == inject.Spoilt,
				"reported %d times: %+v", len(p.reports), p.Event)
		}
		t.Logf("%s: %d injected, %d counted and read, %d lost", name, must, r.Outliers, r.RingFull)
		got := r.Outliers + r.RingFull
		assert.Check(t, got+uint64(c.unseenOf(events)) >= must && got <= must+either,
			"%s: %d read and %d lost, injected %d to %d", name, r.Outliers, r.RingFull, must, must+either)
		total += r.Outliers
		lost += r.RingFull
	}
	assert.Check(t, total != 0 && lost != 0, "%d read and %d lost: want some of both", total, lost)
	n := c.counters().Rules
	assert.Check(t, n["first"].RingFull == k.Rules["first"].RingFull,
		"lost while reading: %+v, before %+v", n, k.Rules)
	// And now there is room again.
	at := len(c.outliers)
	events = inject.Run(t, "offcpu", "sleep", "8", micros(over), "0", "1", "8")
	c.arrived()
	for _, name := range []string{"first", "second"} {
		c.balance(t, threshold, events, c.outliers[at:], name).check(7, 0)
	}
}
