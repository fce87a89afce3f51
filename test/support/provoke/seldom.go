package provoke

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/cpus"
)

const (
	early  = 2 * time.Second // by then those that come early are over
	length = time.Second
	seldom = 16 // at most in that time: one each 90 ms, and what a thread leaves that looks at the clock for long
)

// stacks counts the stacks of one type that this thread leaves within so much time, in which it works.
func stacks(history *History, kind trace.Type, work func(), length time.Duration) (n int) {
	tid := unix.Gettid()
	history.Take()
	for end := time.Now().Add(length); time.Now().Before(end); {
		work()
	}
	for _, ev := range history.Take() {
		if s, ok := ev.Body.(trace.Stack); ok && ev.Type == kind && ev.TID == tid && !s.Outer {
			n++
		}
	}
	return n
}

// foremost keeps this thread on one CPU, before all others there, until the test ends.
func foremost(t *testing.T) {
	runtime.LockOSThread()
	var before unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &before))
	assert.NilError(t, cpus.Keep(cpus.First(t)))
	assert.NilError(t, unix.Setpriority(unix.PRIO_PROCESS, 0, -20))
	t.Cleanup(func() {
		assert.Check(t, unix.Setpriority(unix.PRIO_PROCESS, 0, 0))
		assert.Check(t, unix.SchedSetaffinity(0, &before))
		runtime.UnlockOSThread()
	})
}

// Served looks for stacks of a thread that never gives up its CPU: while it reads and writes, as a
// server that is always busy does, few are left after the first ones; when it no longer does, they
// come as often as those of anybody who runs for long.
func Served(t *testing.T, history *History) {
	history = history.with(t)
	foremost(t)
	zero, err := os.Open("/dev/zero")
	assert.NilError(t, err)
	defer zero.Close()
	buffer := make([]byte, 4096)
	serve := func() { _, _ = zero.Read(buffer) }
	compute := func() {
		for range 1 << 16 { // mostly in user space, even where the clock is a system call
		}
	}
	for begin := time.Now(); ; {
		first := stacks(history, trace.RunStack, serve, early)
		busy, alone := stacks(history, trace.RunStack, serve, length), stacks(history, trace.RunStack, compute, length)
		t.Logf("%d stacks in the first %v, then %d in %v, and %d of one that only computes", first, early, busy, length, alone)
		if first > seldom && busy <= seldom && alone > seldom {
			return
		}
		if time.Since(begin) > Patience { // others may have had the CPU
			t.Fatalf("%d stacks a second of a thread that serves others, and %d of one that computes", busy, alone)
		}
	}
}

// Polled looks for stacks of a thread that sleeps for longer than 20 ms each time: where a timer
// ends its waits, as of one that polls, few are left after the first ones; where another thread
// does, all.
func Polled(t *testing.T, history *History) {
	history = history.with(t)
	foremost(t)
	var pipe [2]int
	assert.NilError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	const wait = 25 * time.Millisecond
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(wait):
				_, _ = unix.Write(pipe[1], []byte{1})
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
		assert.Check(t, unix.Close(pipe[0]))
		assert.Check(t, unix.Close(pipe[1]))
	}()
	poll := func() {
		nap := unix.NsecToTimespec(int64(wait))
		_ = unix.Nanosleep(&nap, nil)
	}
	read := func() { _, _ = unix.Read(pipe[0], make([]byte, 1)) }
	for begin := time.Now(); ; {
		first := stacks(history, trace.WaitStack, poll, early)
		timed := stacks(history, trace.WaitStack, poll, length)
		stacks(history, trace.WaitStack, read, wait) // what the pipe has by now
		woken := stacks(history, trace.WaitStack, read, length)
		t.Logf("%d stacks in the first %v, then %d in %v, and %d of one that another wakes", first, early, timed, length, woken)
		if first > seldom && timed <= seldom && woken > seldom {
			return
		}
		if time.Since(begin) > Patience { // other tasks of this CPU leave some as well
			t.Fatalf("%d stacks a second of a thread that a timer wakes, and %d of one that another does", timed, woken)
		}
	}
}

// Ticks looks for the kernel's tick on a busy CPU: it is recorded only if it was long, or has
// woken somebody, queued work or completed a request.
func Ticks(t *testing.T, _ *History) {
	const floor = 10 * time.Microsecond
	history := Start(t, []string{"sched", "timer", "workqueue", "block"}, floor)
	foremost(t)
	resolver := symbols.New(nil)
	ticks := map[uint64]bool{} // by function
	isTick := func(function uint64) bool {
		is, known := ticks[function]
		if !known {
			names, err := resolver.KernelNames([]uint64{function})
			is = err == nil && slices.Contains([]string{"tick_nohz_handler", "tick_sched_timer"}, waitsites.Function(names[0]))
			ticks[function] = is
		}
		return is
	}
	var told, other int
	for begin := time.Now(); other == 0 && time.Since(begin) < Patience; {
		history.Take()
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
			nap := unix.NsecToTimespec(int64(10 * time.Millisecond)) // ends by another timer
			_ = unix.Nanosleep(&nap, nil)
			for end := time.Now().Add(40 * time.Millisecond); time.Now().Before(end); {
			}
		}
		events := history.Take()
		for i, ev := range events {
			h, ok := ev.Body.(trace.Hrtimer)
			if !ok || ev.Type != trace.HrtimerEntry {
				continue
			}
			if !isTick(h.Function) {
				other++
				continue
			}
			told++
			ends := slices.IndexFunc(events[i:], func(end trace.Event) bool {
				b, ok := end.Body.(trace.Hrtimer)
				return ok && end.Type == trace.HrtimerExit && b.Hrtimer == h.Hrtimer
			})
			assert.Assert(t, ends > 0, "a tick without an end")
			did := slices.ContainsFunc(events[i:i+ends], func(ev trace.Event) bool {
				return slices.Contains([]trace.Type{trace.SchedWaking, trace.SchedWakeupNew, trace.WorkQueued, trace.BlockComplete}, ev.Type)
			})
			took := time.Duration(events[i+ends].Time - ev.Time)
			assert.Check(t, did || took >= floor, "a tick of %v that did nothing is recorded", took)
		}
	}
	t.Logf("%d ticks that were long or did something, %d other timers", told, other)
	assert.Check(t, other > 0, "no timer is recorded")
}
