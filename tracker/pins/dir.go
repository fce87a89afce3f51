package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrBusy is returned for a directory that another process has open.
var ErrBusy = errors.New("in use by another tailcam")

// dir keeps objects as files of a BPF file system. What is in the directory and has no
// name of ours is left alone.
type dir struct {
	path string
	mu   sync.Mutex // readdir moves the offset of f
	f    *os.File
}

// OpenDir opens, or makes, a directory of a BPF file system, for one process at a time.
// It must belong to the user of this process, and be closed to all others: who can put
// maps there decides what this process reads.
func OpenDir(path string) (Store, error) {
	d, err := openDir(path)
	if err != nil {
		return nil, fmt.Errorf("pin in %s: %w", path, err)
	}
	return d, nil
}

func openDir(path string) (*dir, error) {
	if err := inBPFFS(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := &dir{path: path, f: os.NewFile(uintptr(fd), path)}
	if err := errors.Join(d.check(), d.lock()); err != nil {
		return nil, errors.Join(err, d.f.Close())
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink == 0 { // whoever had the lock has removed it
		return nil, errors.Join(err, ErrBusy, d.f.Close())
	}
	return d, nil
}

// inBPFFS tells why a directory is not one of a BPF file system.
func inBPFFS(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is not in a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf`, or name a directory in one", path)
	}
	return nil
}

// check tells why others could put something into the directory.
func (d *dir) check() error {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(d.f.Fd()), &fs), unix.Fstat(int(d.f.Fd()), &st)); err != nil {
		return err
	}
	switch {
	case fs.Type != unix.BPF_FS_MAGIC:
		return errors.New("another file system is mounted there")
	case st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("it belongs to user %d: remove it, or name another directory", st.Uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("other users may use it (mode %#o): chmod 0700, or name another directory", st.Mode&0o777)
	}
	return nil
}

// lock waits a little for a process that is ending.
func (d *dir) lock() error {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(d.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock it: %w", err)
		case time.Now().After(end):
			return ErrBusy
		}
	}
}

// at is the path of an object below the open directory, whatever has become of its name.
func (d *dir) at(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.f.Fd(), name) }

// Put implements Store.
func (d *dir) Put(name string, fd int) error {
	if !nameRule.MatchString(name) {
		return fmt.Errorf("pin %q: invalid name", name)
	}
	if err := d.Remove(name); err != nil {
		return err
	}
	if _, err := objectCall(unix.BPF_OBJ_PIN, d.at(name), fd); err != nil {
		return fmt.Errorf("pin %s in %s: %w", name, d.path, err)
	}
	return nil
}

// Get implements Store.
func (d *dir) Get(name string) (int, error) {
	fd, err := objectCall(unix.BPF_OBJ_GET, d.at(name), 0)
	if err != nil {
		return -1, fmt.Errorf("open %s in %s: %w", name, d.path, err)
	}
	return fd, nil
}

// objectCall is bpf(2) for an object with a path.
func objectCall(command int, path string, fd int) (int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	attr := struct {
		path      uint64
		fd, flags uint32
	}{path: uint64(uintptr(unsafe.Pointer(name))), fd: uint32(fd)}
	got, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	// The kernel reads the path by its address only.
	runtime.KeepAlive(name)
	if errno != 0 {
		return -1, errno
	}
	return int(got), nil
}

// Remove implements Store.
func (d *dir) Remove(name string) error {
	err := unix.Unlinkat(int(d.f.Fd()), name, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s from %s: %w", name, d.path, err)
	}
	return nil
}

// Names implements Store.
func (d *dir) Names() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.f.Seek(0, 0); err != nil {
		return nil, fmt.Errorf("list %s: %w", d.path, err)
	}
	entries, err := d.f.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.path, err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && nameRule.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Lasting implements Store: nobody but tailcam looks after a directory.
func (d *dir) Lasting() (bool, error) { return false, nil }

// Sync implements Store: the kernel lets go of them by itself.
func (d *dir) Sync() error { return nil }

// String implements Store.
func (d *dir) String() string { return d.path }

// Close implements Store. An empty directory is removed.
func (d *dir) Close() error {
	_ = unix.Rmdir(d.path) // it fails unless it is empty
	return d.f.Close()
}
