package provoke

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/test/support/cpus"
)

// Served looks for stacks of a thread that never gives up its CPU: while it reads and writes, as a
// server that is always busy does, few are left after the first ones; when it no longer does, they
// come as often as those of anybody who runs for long.
func Served(t *testing.T, history *History) {
	history = history.with(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	var before unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &before))
	assert.NilError(t, cpus.Keep(cpus.First(t)))
	assert.NilError(t, unix.Setpriority(unix.PRIO_PROCESS, 0, -20))
	defer func() {
		assert.Check(t, unix.Setpriority(unix.PRIO_PROCESS, 0, 0))
		assert.Check(t, unix.SchedSetaffinity(0, &before))
	}()
	zero, err := os.Open("/dev/zero")
	assert.NilError(t, err)
	defer zero.Close()
	stacks := func(work func(), length time.Duration) (n int) {
		history.Take()
		for end := time.Now().Add(length); time.Now().Before(end); {
			work()
		}
		for _, ev := range history.Take() {
			if s, ok := ev.Body.(trace.Stack); ok && ev.Type == trace.RunStack && ev.TID == tid && !s.Outer {
				n++
			}
		}
		return n
	}
	buffer := make([]byte, 4096)
	serve := func() { _, _ = zero.Read(buffer) }
	compute := func() {
		for range 1 << 16 { // mostly in user space, even where the clock is a system call
		}
	}

	const (
		early  = 2 * time.Second // by then those that came early are over
		length = time.Second
		most   = 16 // a second: one each 90 ms, and what a thread leaves that looks at the clock for long
	)
	for begin := time.Now(); ; {
		first := stacks(serve, early)
		busy, alone := stacks(serve, length), stacks(compute, length)
		t.Logf("%d stacks in the first %v, then %d in %v, and %d of one that only computes", first, early, busy, length, alone)
		if first > most && busy <= most && alone > most {
			return
		}
		if time.Since(begin) > Patience { // others may have had the CPU
			t.Fatalf("%d stacks a second of a thread that serves others, and %d of one that computes", busy, alone)
		}
	}
}
