// Package tracefs reads what the kernel tells of its tracepoints, without
// leaving anything mounted.
package tracefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoEvent tells that this kernel has no such tracepoint.
var ErrNoEvent = errors.New("this kernel has no such tracepoint")

// FS is the trace file system. Its methods may be called from several
// goroutines at once.
type FS struct{ dir int }

// Open finds the trace file system where it is mounted, or else mounts it for
// this FS alone, at no path. Needs CAP_DAC_READ_SEARCH or root, and for the
// second CAP_SYS_ADMIN.
func Open() (*FS, error) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		f := &FS{dir: fd}
		if _, err := f.read("events/header_page"); err == nil {
			return f, nil
		}
		_ = f.Close() // only a directory that is not what we want
	}
	fd, err := mount()
	if err != nil {
		return nil, fmt.Errorf("mount tracefs: %w (needed for tracepoint: hooks; raw_tracepoint: hooks work without)", err)
	}
	return &FS{dir: fd}, nil
}

// mount returns the root of a mount that is at no path, and ends with it. Needs kernel 5.2+.
func mount() (int, error) {
	context, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, err
	}
	return unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
}

// Close gives it up.
func (f *FS) Close() error { return unix.Close(f.dir) }

func (f *FS) read(name string) ([]byte, error) {
	fd, err := unix.Openat(f.dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, 1<<20))
}

func (f *FS) event(category, name, file string) ([]byte, error) {
	b, err := f.read(path.Join("events", path.Base(category), path.Base(name), file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s:%s", ErrNoEvent, category, name)
	}
	return b, err
}

// ID is the number by which perf_event_open knows a tracepoint.
func (f *FS) ID(category, name string) (uint64, error) {
	b, err := f.event(category, name, "id")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
}

// Format returns the fields of a tracepoint's record.
func (f *FS) Format(category, name string) ([]Field, error) {
	b, err := f.event(category, name, "format")
	if err != nil {
		return nil, err
	}
	return ParseFormat(string(b))
}
