// Package lockfile takes exclusive locks that are released when the process exits, and
// takes over locks of processes that were killed but cannot exit: a thread that waits
// for a hung file system keeps the process's descriptors, and so its locks.
package lockfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dying is how long a killed holder gets to exit.
	dying = 500 * time.Millisecond
	// guarded is how long to wait for other processes taking the same lock.
	guarded = 2 * time.Second
	poll    = 10 * time.Millisecond
)

// Options configures Take. It may be nil.
type Options struct {
	Mode fs.FileMode // of a new file; 0: 0640
	// ReadOnly opens the file read-only if the file system can lock that, so that it
	// can be remounted read-only. The holder's pid is not written then.
	ReadOnly bool
	// TakenOver is called if a lock was taken over.
	TakenOver func(pid int)
}

// HeldError means that a living process holds the lock.
type HeldError struct {
	Path string
	PID  int // 0: unknown, or in another PID namespace
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return e.Path + " is locked by another process"
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Take locks a file, creating it if needed. The lock lasts until the file is closed or
// the process exits. If a living process holds it, even a stopped one, Take returns a
// *HeldError. The lock of a killed process that cannot exit is taken over within a
// second by replacing the file. At most one of several callers succeeds. Take may be
// called concurrently.
func Take(path string, opts *Options) (*os.File, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Mode = cmp.Or(o.Mode, 0o640)
	// The directory lock serializes all decisions about the file. It is held briefly
	// and never replaced.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	defer dir.Close()
	for end := time.Now().Add(guarded); ; time.Sleep(poll) {
		if err = flock(dir); !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock the directory of %s: %w", path, err)
	} // NFS cannot lock directories: two concurrent take-overs may collide there
	f, err := take(path, &o)
	if err != nil {
		return nil, err
	}
	if !o.ReadOnly {
		err = f.Truncate(0)
		if err == nil {
			_, err = f.WriteAt([]byte(own()), 0)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
	return f, nil
}

func take(path string, o *Options) (*os.File, error) {
	var killed time.Time
	for ; ; time.Sleep(poll) {
		f, err := open(path, o)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		err = flock(f)
		if err == nil {
			return f, nil
		}
		pid := holder(f)
		f.Close()
		switch {
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case pid == 0 || !isDying(pid):
			return nil, &HeldError{Path: path, PID: pid}
		case killed.IsZero():
			killed = time.Now()
		case time.Since(killed) > dying:
			return replace(path, o, pid)
		}
	}
}

// replace replaces a file locked by a dying process with a locked one.
func replace(path string, o *Options, pid int) (*os.File, error) {
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	_ = os.Remove(temporary) // left by an earlier process with the same pid
	f, err := open(temporary, o)
	if err == nil {
		if err = flock(f); err == nil {
			err = os.Rename(temporary, path)
		}
		if err != nil {
			f.Close()
			_ = os.Remove(temporary)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("take over %s from killed process %d: %w", path, pid, err)
	}
	if o.TakenOver != nil {
		o.TakenOver(pid)
	}
	return f, nil
}

// open opens a lock file without following symlinks or blocking on pipes.
func open(path string, o *Options) (*os.File, error) {
	how := os.O_RDWR
	if o.ReadOnly {
		how = os.O_RDONLY
	}
	const safe = os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	f, err := os.OpenFile(path, how|safe, o.Mode)
	if err != nil {
		return nil, err
	}
	if o.ReadOnly && errors.Is(flock(f), unix.EBADF) { // NFS requires write access for locking
		f.Close()
		return os.OpenFile(path, os.O_RDWR|safe, o.Mode)
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// own returns what the holder writes: its pid and start time.
func own() string {
	pid := os.Getpid()
	return strconv.Itoa(pid) + " " + started(pid) + "\n"
}
