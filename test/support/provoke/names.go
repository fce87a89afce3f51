package provoke

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Names has a thread change its name, sleep, and end: whatever names it in the
// history must have the name of that time, although it is gone by then.
func Names(t *testing.T, history *History) {
	t.Helper()
	history = history.with(t)
	history.Take()
	names := []string{"name-first", "name-second", "name-third"}
	var tid int
	var before, since []uint64 // each name: begun to take it, and has it
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		tid = unix.Gettid()
		for _, name := range names {
			b := append([]byte(name), 0)
			before = append(before, linux.Monotonic())
			if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0); err != nil {
				done <- err
				return
			}
			since = append(since, linux.Monotonic())
			for range 3 {
				pause := unix.NsecToTimespec(int64(2 * time.Millisecond))
				_ = unix.Nanosleep(&pause, nil)
			}
		}
		done <- nil
	}()
	assert.NilError(t, <-done)
	for begin := time.Now(); unix.Tgkill(unix.Getpid(), tid, 0) == nil && time.Since(begin) < Patience; {
		time.Sleep(time.Millisecond)
	}
	seen := map[string]int{}
	for _, ev := range history.Take() {
		var comms []string
		switch body := ev.Body.(type) {
		case trace.Switch:
			if ev.TID == tid {
				comms = append(comms, body.PrevComm.String())
			}
			if body.NextTID == tid {
				comms = append(comms, body.NextComm.String())
			}
		case trace.Wake:
			if body.TID == tid {
				comms = append(comms, body.Comm.String())
			}
		}
		n, _ := slices.BinarySearch(since, ev.Time)
		if n == 0 || n < len(before) && ev.Time >= before[n] {
			continue // it had another name, or was interrupted while it took the next one
		}
		for _, comm := range comms {
			seen[comm]++
			assert.Check(t, comm == names[n-1], "%v at %d, %d ns after it became %s: its thread is called %q", ev.Type, ev.Time,
				ev.Time-since[n-1], names[n-1], comm)
		}
	}
	// Three sleeps: left, woken, back. Some machines keep switches from every tracer.
	last := names[len(names)-1]
	assert.Check(t, seen[last] > 0, "seen %v of thread %d", seen, tid)
}
