// Package lockfile takes exclusive locks that end with the process that holds
// them, and takes them from a process that is dying and cannot end: one that was
// killed while a thread of it waits for a file system that does not answer keeps
// its descriptors, and so its locks, for as long as that lasts.
package lockfile

import (
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
	// dying is how long a holder that was killed is given to end by itself.
	dying = 500 * time.Millisecond
	// guarded is how long others may be at the same decision.
	guarded = 2 * time.Second
	poll    = 10 * time.Millisecond
)

// Options may be nil.
type Options struct {
	Mode fs.FileMode // of a file that is made; 0: 0640
	// ReadOnly opens the file for reading only where the file system can lock
	// that: it can then be remounted read-only. The holder's pid is not written.
	ReadOnly bool
	// TakenOver is told whose lock was taken.
	TakenOver func(pid int)
}

// HeldError says that a living process has the lock.
type HeldError struct {
	Path string
	PID  int // 0: unknown, perhaps of another PID namespace
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return e.Path + " is locked by another process"
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Take locks a file, and makes it if it is missing. The lock lasts until the
// file is closed or the process has ended. A holder that is alive, even if it is
// stopped, is a *HeldError; of one that was killed and does not end the lock is
// taken within a second: the path then leads to a new file. Of several callers at
// most one succeeds. May be called by any goroutine.
func Take(path string, opts *Options) (*os.File, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Mode == 0 {
		o.Mode = 0o640
	}
	// All decisions about the file are made under this lock, which is never
	// replaced and held for a moment only.
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
	} // NFS cannot lock directories: two who come at once after a dying one may collide there
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

// replace puts a locked file of our own in the place of one that a dying process holds.
func replace(path string, o *Options, pid int) (*os.File, error) {
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	_ = os.Remove(temporary) // of an earlier process with this number
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
		return nil, fmt.Errorf("take %s from process %d, which was killed and does not end: %w", path, pid, err)
	}
	if o.TakenOver != nil {
		o.TakenOver(pid)
	}
	return f, nil
}

// open opens a lock file, and nothing else that lies at its path.
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
	if o.ReadOnly && errors.Is(flock(f), unix.EBADF) { // NFS locks what is open for writing
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

// own is what the holder writes: its pid, and when it was started.
func own() string {
	pid := os.Getpid()
	return strconv.Itoa(pid) + " " + started(pid) + "\n"
}
