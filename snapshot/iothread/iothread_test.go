package iothread

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestDetachLeavesTheDescriptorsBehind(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	assert.NilError(t, err)
	defer listener.Close()
	locked, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	assert.NilError(t, err)
	defer locked.Close()
	fd := int(locked.Fd())
	links, err := Do(0, func() ([]string, error) {
		entries, err := os.ReadDir("/proc/thread-self/fd")
		var links []string
		for _, e := range entries {
			if link, err := os.Readlink("/proc/thread-self/fd/" + e.Name()); err == nil && len(e.Name()) > 0 && e.Name() > "2" {
				links = append(links, link)
			}
		}
		return links, err
	})
	assert.NilError(t, err)
	for _, link := range links {
		assert.Check(t, link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]" ||
			filepath.Base(link) == "testlog.txt", "the thread has %s", link)
	}
	// The process has all that it had.
	_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	assert.Check(t, err, "the process's own descriptor")
}

// What the thread opens is of no use to others, and what it holds in its table
// does not keep a lock of the process.
func TestLockGoesWithTheProcessTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := os.Create(path)
	assert.NilError(t, err)
	assert.NilError(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	begun, end := make(chan struct{}), make(chan struct{})
	thread := Start(nil)
	defer thread.Close()
	go thread.Do(func() error { close(begun); <-end; return nil })
	<-begun
	defer close(end)
	held.Close() // as a process that ends does
	again, err := os.Open(path)
	assert.NilError(t, err)
	defer again.Close()
	assert.Check(t, unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB), "the thread still holds the lock")
}

func TestDoEndsInTime(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	_, err := Do(time.Millisecond, func() (int, error) { <-hang; return 1, nil })
	assert.Check(t, is.ErrorIs(err, ErrTimeout))
}

func TestThread(t *testing.T) {
	thread := Start(nil)
	var tids []int
	for range 3 {
		assert.NilError(t, thread.Do(func() error { tids = append(tids, unix.Gettid()); return nil }))
	}
	assert.Check(t, tids[0] == tids[1] && tids[1] == tids[2], "ran on threads %v", tids)
	func() {
		defer func() {
			r := recover()
			assert.Check(t, r == "x", "the caller saw %v", r)
		}()
		_ = thread.Do(func() error { panic("x") })
	}()
	thread.Close()
	assert.Check(t, is.ErrorIs(thread.Do(func() error { return nil }), ErrClosed), "after Close")
}

// The runtime goes on as usual while threads come and go: files, sockets, timers.
func TestRuntimeBesideThreads(t *testing.T) {
	dir := t.TempDir()
	failed := make(chan error, 64)
	for i := range 64 {
		go func() {
			_, err := Do(0, func() (int, error) {
				for j := range 20 {
					path := filepath.Join(dir, fmt.Sprintf("%d-%d", i, j))
					if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
						return 0, err
					}
					if got, err := os.ReadFile(path); err != nil || string(got) != path {
						return 0, fmt.Errorf("%s holds %q: %w", path, got, err)
					}
					time.Sleep(time.Microsecond)
					runtime.Gosched()
				}
				return 0, nil
			})
			failed <- err
		}()
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	assert.NilError(t, err)
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("x"))
			c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("unix", listener.Addr().String())
		assert.NilError(t, err)
		n, err := c.Read(make([]byte, 4))
		assert.Check(t, n == 1 && err == nil, "read %d, %v", n, err)
		c.Close()
		runtime.GC()
	}
	for range 64 {
		assert.Check(t, <-failed)
	}
}

// The main thread, whose descriptors are those that /proc shows of the process, is
// not among the threads that are detached.
func TestMainThreadStays(t *testing.T) {
	for range 200 {
		tid, err := Do(0, func() (int, error) { return unix.Gettid(), nil })
		if err != nil || tid == unix.Getpid() {
			t.Fatalf("detached thread %d of process %d: %v", tid, unix.Getpid(), err)
		}
	}
}
