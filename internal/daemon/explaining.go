package daemon

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/watchdog"
)

// explaining is the explanation under way. Its methods may be called concurrently.
type explaining struct {
	mu    sync.Mutex
	tid   int // of its thread; 0: none
	since time.Time
	cpu   time.Duration // of the thread, when its state was asked for last
}

// begin notes that a thread explains, until end is called on it.
func (e *explaining) begin(tid int) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tid, e.since, e.cpu = tid, time.Now(), 0
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.tid = 0
	}
}

// setNice sets the niceness of a thread while it explains.
func (e *explaining) setNice(tid, nice int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tid == tid {
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice) // on failure it keeps what it has
	}
}

// late reports whether an explanation is under way that nobody waits for any more.
func (e *explaining) late() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tid != 0
}

// state is for the watchdog. An explanation has explainLimit; one that then still
// computes hangs, and one that does not gets no CPU.
func (e *explaining) state() watchdog.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tid == 0 || time.Since(e.since) < explainLimit {
		return watchdog.State{Idle: true}
	}
	s := watchdog.State{Work: fmt.Sprintf("one explanation for %s", time.Since(e.since).Round(time.Second))}
	cpu := linux.ThreadCPU(e.tid)
	if cpu == e.cpu {
		s.Waits = "a CPU"
	}
	e.cpu = cpu
	return s
}
