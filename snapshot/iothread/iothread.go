// Package iothread runs file operations on threads that may hang in the kernel.
//
// A thread in an operation of a file system that does not answer cannot be
// killed, and as long as it lives, so does the process's descriptor table: the
// BPF programs, the locks and the sockets of a daemon that was sent SIGKILL
// would stay. A thread of this package has a table of its own, without them.
package iothread

import (
	"errors"
	"fmt"
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
	// ErrTimeout means that the operation did not return in time. It goes on, and
	// must own all that it writes.
	ErrTimeout = errors.New("the file system does not answer")
	// ErrClosed means that the thread was closed.
	ErrClosed = errors.New("the thread is closed")
)

// Detach gives the calling goroutine a thread of its own with a descriptor table
// of its own, which holds the standard streams and none of the process's other
// descriptors. The thread ends with the goroutine. What the goroutine opens from
// here on is a descriptor of this thread alone: it must be closed by the same
// goroutine, and handed to no other one.
//
// After an error the goroutine goes on with the process's table.
func Detach() error {
	runtime.LockOSThread() // never unlocked: the thread must not serve another goroutine
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return fmt.Errorf("detach thread: %w", err)
	}
	const dir = "/proc/thread-self/fd"
	open, err := descriptors(dir)
	if err != nil {
		// Without /proc: none can be told from the runtime's own, so all stay.
		return fmt.Errorf("detach thread: %w", err)
	}
	for _, fd := range open {
		if !keep(dir, fd) {
			_ = unix.Close(fd) // closed descriptors need no answer
		}
	}
	return nil
}

// descriptors lists the open ones. It uses no os.File: that would be one more.
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

// keep tells whether a thread needs a descriptor: the standard streams, and those
// that the Go runtime uses from any thread: of its poller, and the log that go test
// has of each file that is opened.
func keep(dir string, fd int) bool {
	if fd <= 2 {
		return true
	}
	link, err := os.Readlink(dir + "/" + strconv.Itoa(fd))
	return err == nil && (strings.HasPrefix(link, "anon_inode:[eventpoll]") || strings.HasPrefix(link, "anon_inode:[eventfd]") ||
		strings.HasSuffix(link, "/testlog.txt"))
}

// Do runs f on a detached thread of its own and waits for it up to limit, 0: for
// ever. After ErrTimeout f is still running.
func Do[T any](limit time.Duration, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		_ = Detach() // or it works with the process's descriptors, as any other thread
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

// Thread is a detached thread that runs one function after the other. Its methods
// may be called by several goroutines.
type Thread struct {
	jobs  chan func()
	close sync.Once
	ended chan struct{} // closed by Close
}

// Start starts a thread. First, if not nil, runs on it before all else.
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

// Do runs f on the thread, after what others have given it, and returns its
// error. f must close what it opens. A panic of f is the caller's.
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

// Close ends the thread, once what it runs has returned; it does not wait.
func (t *Thread) Close() { t.close.Do(func() { close(t.ended) }) }
