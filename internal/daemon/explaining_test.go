package daemon

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/linux"
)

// TestExplaining: beyond its time, an explanation that computes hangs for the watchdog,
// and one that does not waits for the disk.
func TestExplaining(t *testing.T) {
	var e explaining
	assert.Check(t, e.state().Idle && !e.late())
	run := func(work func(stop <-chan struct{})) (tid int, end func()) {
		started, stop, ended := make(chan int), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // ends with the goroutine
			done := e.begin(unix.Gettid())
			started <- unix.Gettid()
			work(stop)
			done()
		}()
		return <-started, func() { close(stop); <-ended }
	}

	tid, end := run(func(stop <-chan struct{}) {
		for ended := false; !ended; {
			select {
			case <-stop:
				ended = true
			default:
			}
		}
	})
	assert.Check(t, e.state().Idle && e.late(), "it has its time")
	e.since = time.Now().Add(-2 * explainLimit)
	for range 3 {
		for before := linux.ThreadCPU(tid); linux.ThreadCPU(tid) == before; {
			time.Sleep(time.Millisecond)
		}
		s := e.state()
		assert.Check(t, !s.Idle && s.Waits == "" && s.Work != "", "computes: %+v", s)
	}
	end()
	assert.Check(t, e.state().Idle && !e.late())

	tid, end = run(func(stop <-chan struct{}) { <-stop })
	e.since = time.Now().Add(-2 * explainLimit)
	for before := linux.ThreadCPU(tid); before == 0 || e.cpu != before; before = linux.ThreadCPU(tid) {
		e.state() // until it stands still
	}
	s := e.state()
	assert.Check(t, !s.Idle && s.Waits != "", "stands still: %+v", s)
	end()

	assert.Equal(t, linux.ThreadCPU(1<<22+1), time.Duration(0), "a thread that there cannot be")
}
