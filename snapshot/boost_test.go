package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// isRaised reports whether a thread has what a Boost gives, or Prompt.
func isRaised(a *unix.SchedAttr) bool {
	return a.Nice == raisedNice || a.Policy == unix.SCHED_RR && a.Priority == raisedPriority
}

// raisedThreads counts the threads of this process that are raised.
func raisedThreads() (raised, all int) {
	for _, tid := range ownThreads() {
		if a, err := unix.SchedGetAttr(tid, 0); err == nil {
			if all++; isRaised(a) {
				raised++
			}
		}
	}
	return raised, all
}

func needsBoost(t *testing.T, limit time.Duration) *Boost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a raised priority needs CAP_SYS_NICE")
	}
	for _, tid := range ownThreads() { // the tests may run under nice(1)
		if a, err := unix.SchedGetAttr(tid, 0); err == nil && a.Nice > 0 {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 0) // has ended
		}
	}
	b, err := NewBoost(limit)
	assert.NilError(t, err)
	b.overloaded = func() bool { return true }
	return b
}

// notRaised waits for threads of goroutines that have ended.
func notRaised(t *testing.T) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n, _ := raisedThreads(); n > 0 {
			return poll.Continue("%d threads are raised", n)
		}
		return poll.Success()
	})
}

// lockedThread returns a thread with a niceness, and ends it with the test.
func lockedThread(t *testing.T, nice int) int {
	t.Helper()
	tid, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread()
		if nice != 0 {
			assert.Check(t, unix.Setpriority(unix.PRIO_PROCESS, 0, nice))
		}
		tid <- unix.Gettid()
		<-end
	}()
	return <-tid
}

// All threads are raised, get back what they had, and children never have it.
func TestBoost(t *testing.T) {
	b := needsBoost(t, time.Minute)
	notRaised(t)
	nicer := lockedThread(t, 7)
	before, err := unix.SchedGetAttr(lockedThread(t, 0), 0)
	assert.NilError(t, err)

	b.Start()
	b.Start()
	late := lockedThread(t, 0)
	assert.Check(t, b.Refresh())
	a, err := unix.SchedGetAttr(late, 0)
	assert.NilError(t, err)
	assert.Check(t, isRaised(a), "a thread that began later: %+v", a)
	raised, all := raisedThreads()
	assert.Check(t, raised >= 2 && raised < all, "%d of %d raised", raised, all)
	a, err = unix.SchedGetAttr(nicer, 0)
	assert.Check(t, err == nil && a.Nice == 7, "niceness %d, %v", a.Nice, err)
	out, err := exec.Command("nice").Output() // prints its own
	assert.Check(t, err == nil && strings.TrimSpace(string(out)) == "0", "a child has niceness %s, %v", out, err)
	out, err = exec.Command("chrt", "--pid", "0").Output()
	assert.Check(t, err == nil && strings.Contains(string(out), "SCHED_OTHER"), "a child has %s, %v", out, err)

	b.End()
	assert.Check(t, b.Refresh() && b.Stats().Raised, "given back before the last End")
	b.End()
	notRaised(t)
	a, err = unix.SchedGetAttr(late, 0)
	assert.Check(t, err == nil && a.Nice == 0 && a.Runtime == before.Runtime, "%+v, %v", a, err)
	assert.Check(t, !b.Refresh())
}

// It ends by itself, and does not begin where it had too much of the time.
func TestBoostIsLimited(t *testing.T) {
	b := needsBoost(t, 20*time.Millisecond)
	before := ownCPU()
	b.Start()
	time.Sleep(60 * time.Millisecond)
	assert.Check(t, b.Refresh() || ownCPU()-before >= 20*time.Millisecond, "it ended without using a CPU")
	for begin := ownCPU(); ownCPU()-begin < 20*time.Millisecond; { // it shall use CPU time
	}
	notRaised(t)
	assert.Check(t, !b.Refresh())
	b.End()

	b.now = func() time.Time { return b.counted } // the clock stands
	b.saved = 0
	b.Start()
	assert.Check(t, !b.Refresh(), "raised, and nothing was saved")
	b.End()
	then := b.counted.Add(boostShare * 10 * time.Second)
	b.now = func() time.Time { return then }
	b.Start()
	assert.Check(t, b.Refresh() && b.saved == boostSaved, "saved %s", b.saved)
	b.End()
	notRaised(t)
	b.overloaded = func() bool { return false }
	b.Start()
	assert.Check(t, !b.Refresh(), "raised on a machine that is not overloaded")
	notRaised(t)
	b.End()
	notRaised(t)
	s := b.Stats()
	assert.Check(t, s.Expired == 1 && s.Refused == 1 && s.Completed == 1 && !s.Raised && s.RealTime == b.realTime, "%+v", s)
	assert.Check(t, s.CPU >= 20*time.Millisecond, "%s of CPU time", s.CPU)

	var none *Boost
	none.Start()
	none.End()
	none.Prompt()
	assert.Check(t, !none.Refresh())
}

// While a snapshot is written its threads are raised; afterwards only those are that read.
func TestSnapshotIsBoosted(t *testing.T) {
	b := needsBoost(t, time.Minute)
	written, explained := make(chan bool, 1), make(chan bool, 1)
	raised := func() bool {
		a, err := unix.SchedGetAttr(0, 0)
		return err == nil && isRaised(a)
	}
	done, onDone := collecting()
	m, stop := running(t, Options{
		Recorder: newMemRecorder(100), Store: testStore(t, StoreOptions{}), RingRecords: 100, OnDone: onDone, Boost: b, Compress: true,
		BeforeTrace: func(string) error {
			written <- raised()
			return nil
		},
		Explain: func(*trace.Reader, *Meta, func() *Names) (*Explanation, error) {
			b.Refresh()
			explained <- raised()
			return &Explanation{JSON: map[string]any{}}, nil
		},
	})
	_, err := m.TakeNow("test")
	assert.NilError(t, err)
	d := <-done
	assert.NilError(t, d.Err)
	assert.Check(t, <-written, "the trace was written at ordinary priority")
	assert.Check(t, <-explained, "it was explained at ordinary priority")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n, _ := raisedThreads(); n != 1 { // the one that reads the recorder
			return poll.Continue("%d threads are raised", n)
		}
		return poll.Success()
	})
	streams, err := filepath.Glob(filepath.Join(d.Dir, TraceDir, "kernel", "kernel_*.zst"))
	assert.Check(t, err == nil && len(streams) > 0, "%v", err)
	stop()
	notRaised(t)
}

func TestNoBoost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a raised priority needs CAP_SYS_NICE")
	}
	const variable = "TAILCAM_TEST_NO_BOOST"
	if os.Getenv(variable) != "" {
		_, err := NewBoost(time.Second)
		assert.ErrorContains(t, err, os.Getenv(variable))
		return
	}
	needsBoost(t, time.Second) // and has niceness 0 for the child processes
	for want, command := range map[string][]string{
		"needs CAP_SYS_NICE or LimitNICE=-20": {"prlimit", "--nice=0:0", "setpriv", "--bounding-set=-sys_nice"},
		"low priority":                        {"nice", "-n", "5"},
	} {
		cmd := exec.Command(command[0], append(command[1:], os.Args[0], "-test.run", "^TestNoBoost$")...)
		cmd.Env = append(os.Environ(), variable+"="+want)
		out, err := cmd.CombinedOutput()
		assert.Check(t, err, "%s: %s", strconv.Quote(want), out)
	}
	// What the shipped unit gives: limits, and no capability.
	if out, err := exec.Command("prlimit", "--nice=40:40", "--rtprio=1:1", "true").CombinedOutput(); err != nil {
		t.Logf("the limits cannot be set here: %s", out) // TestBoostByLimits in test/vm/guest can
		return
	}
	cmd := exec.Command("prlimit", "--nice=40:40", "--rtprio=1:1", "setpriv", "--bounding-set=-sys_nice", os.Args[0], "-test.run", "^TestBoost")
	out, err := cmd.CombinedOutput()
	assert.Check(t, err, "%s", out)
}
