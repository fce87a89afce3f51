// Package iothread runs file operations on threads that may hang in the kernel.
//
// A thread that waits for a file system that does not respond cannot be killed, and
// keeps the descriptor table of its process alive: the BPF programs, locks and sockets
// of a killed daemon would stay. Threads of this package have a descriptor table of
// their own without them.
package iothread

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrTimeout means that the operation did not return in time. It continues, so it
	// must own everything it writes to.
	ErrTimeout = errors.New("the file system does not answer")
	// ErrClosed means that the thread was closed.
	ErrClosed = errors.New("the thread is closed")
)

// The main goroutine keeps the main thread: what /proc/PID/fd and /proc/self/fd
// show are that thread's descriptors, so it must never be detached.
func init() {
	runtime.LockOSThread()
	findPollers()
}

// pollers are the descriptors of the runtime's poller, which has them as long as the process
// lives: what there is of their kind before main begins. Nil: not known.
var pollers map[int]bool

// findPollers lists them. Later ones are of others, such as readers of ring buffers.
func findPollers() {
	r, w, err := os.Pipe() // has the runtime make its poller
	if err != nil {
		return
	}
	defer r.Close()
	defer w.Close()
	const dir = "/proc/self/fd"
	open, err := descriptors(dir)
	if err != nil {
		return
	}
	pollers = map[int]bool{}
	for _, fd := range open {
		if isPoller(dir, fd) {
			pollers[fd] = true
		}
	}
}

// Detach locks the calling goroutine to a thread with a descriptor table of its own
// that contains only the standard streams. The thread ends with the goroutine.
// Descriptors opened by the goroutine from now on are valid on this thread only: close
// them on the same goroutine and do not share them.
//
// On error, the goroutine keeps using the process's table.
func Detach() error {
	runtime.LockOSThread() // never unlocked: the thread must not serve another goroutine
	const dir = "/proc/thread-self/fd"
	open, err := descriptors(dir)
	if err != nil {
		// Without /proc the runtime's descriptors are unknown, so keep all.
		return fmt.Errorf("detach thread: %w", err)
	}
	last := 2
	for _, fd := range open {
		if keep(dir, fd) {
			last = fd
		}
	}
	// Descriptors that are not copied cannot be the last ones of their file: if others close
	// BPF links meanwhile, closing copies would wait for the kernel to release them, for
	// seconds each. What is above last is not copied (close_range(2), Linux 5.9).
	if err := unix.CloseRange(uint(last+1), math.MaxUint32, unix.CLOSE_RANGE_UNSHARE); err != nil {
		return fmt.Errorf("detach thread: %w", err)
	}
	if open, err = descriptors(dir); err != nil {
		return fmt.Errorf("detach thread: %w", err)
	}
	for _, fd := range open {
		if !keep(dir, fd) {
			_ = unix.Close(fd) // closed descriptors need no answer
		}
	}
	return nil
}

// descriptors lists the open descriptors without using os.File, which would add one.
func descriptors(dir string) ([]int, error) {
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	var open []int
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(d, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			slices.Sort(open)
			return slices.DeleteFunc(open, func(fd int) bool { return fd == d }), nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if fd, err := strconv.Atoi(name); err == nil {
				open = append(open, fd)
			}
		}
	}
}

// keep reports whether a thread needs a descriptor: a standard stream, the runtime's
// poller, or the log in which go test records opened files.
func keep(dir string, fd int) bool {
	if fd <= 2 || pollers[fd] {
		return true
	}
	if pollers == nil && isPoller(dir, fd) {
		return true
	}
	return strings.HasSuffix(target(dir, fd), "/testlog.txt")
}

func isPoller(dir string, fd int) bool {
	of := target(dir, fd)
	return strings.HasPrefix(of, "anon_inode:[eventpoll]") || strings.HasPrefix(of, "anon_inode:[eventfd]")
}

// target says what a descriptor is of; empty if that cannot be read.
func target(dir string, fd int) string {
	of, err := os.Readlink(dir + "/" + strconv.Itoa(fd))
	if err != nil {
		return ""
	}
	return of
}

// Do runs f on a new detached thread and waits for it up to limit; 0: no limit. After
// ErrTimeout f is still running.
func Do[T any](limit time.Duration, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		_ = Detach() // on error it uses the process's descriptors
		var a answer
		a.value, a.err = f()
		done <- a
	}()
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-late:
		var none T
		return none, ErrTimeout
	}
}

// Thread is a detached thread that runs functions one at a time. Its methods may be
// called concurrently.
type Thread struct {
	jobs  chan func()
	close sync.Once
	ended chan struct{} // closed by Close
}

// Start starts a thread. It calls first, if not nil, before anything else.
func Start(first func()) *Thread {
	t := &Thread{jobs: make(chan func()), ended: make(chan struct{})}
	go func() {
		_ = Detach() // see Do
		if first != nil {
			first()
		}
		for {
			select {
			case job := <-t.jobs:
				job()
			case <-t.ended:
				return
			}
		}
	}()
	return t
}

// Do runs f on the thread after the functions queued before it and returns its error. f
// must close what it opens. If f panics, so does Do.
func (t *Thread) Do(f func() error) error {
	var err error
	var panicked any
	done := make(chan struct{})
	job := func() {
		defer close(done)
		defer func() { panicked = recover() }()
		err = f()
	}
	select {
	case t.jobs <- job:
	case <-t.ended:
		return ErrClosed
	}
	<-done
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// Close ends the thread after the running function has returned, without waiting for
// that.
func (t *Thread) Close() { t.close.Do(func() { close(t.ended) }) }
