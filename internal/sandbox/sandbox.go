// Package sandbox restricts the calling process: memory, capabilities, system calls.
package sandbox

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// mapped is the extra address space for mapped files and for memory that Go reserves
// without using it.
const mapped = 6 << 30

// LimitMemory limits the process's own memory, in bytes, excluding mapped files and the
// last allocation, which Parser bounds. Go's heap limit is set well below that;
// exceeding the limit ends the process.
func LimitMemory(bytes int64) error {
	debug.SetMemoryLimit(bytes / 4 * 3)
	for _, l := range []struct {
		what  int
		limit uint64
	}{{unix.RLIMIT_DATA, uint64(bytes)}, {unix.RLIMIT_AS, uint64(bytes) + mapped}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("limit memory: %w", err)
		}
	}
	return nil
}

// Files is the maximum number of descriptors in the sandbox.
const Files = 256

// limitRest disables core dumps and writing files, and limits descriptors.
func limitRest() error {
	linux.LimitPriority()
	for _, l := range []struct {
		what  int
		limit uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_NOFILE, Files}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("limit resources: %w", err)
		}
	}
	return nil
}

// Capability numbers, from linux/capability.h.
const (
	CapDACOverride       = 1
	CapDACReadSearch     = 2
	CapKill              = 5
	CapSetGID            = 6
	CapSetUID            = 7
	CapSysPtrace         = 19
	CapCheckpointRestore = 40
)

// Capabilities returns the effective capabilities of the calling thread, as bits.
func Capabilities() (uint64, error) {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// Enter drops all capabilities but keep (bits), disables ptrace by other processes of
// the user and gaining privileges, and blocks system calls not in the profile. Threads
// that do not run Go code are not covered, so use it only in processes started for the
// sandbox. ErrNoFilter: everything but the system call filter is in place.
func Enter(p Profile, keep uint64) error {
	runtime.LockOSThread() // the filter is synchronized to all threads
	defer runtime.UnlockOSThread()
	if err := limitRest(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid ptrace: %w", err)
	}
	if err := dropCapabilities(keep); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	if err := p.install(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoFilter, err)
	}
	return nil
}

// DropCapabilities drops all capabilities for good, and disables ptrace by other processes
// of the user and gaining privileges. It is for processes that are started for it.
func DropCapabilities() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid ptrace: %w", err)
	}
	if err := dropCapabilities(0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// ErrNoFilter means that system calls could not be restricted.
var ErrNoFilter = errors.New("cannot install a system call filter (blocked by the daemon's own filter, or not supported by the kernel)")

func dropCapabilities(keep uint64) error {
	have, err := Capabilities()
	if err != nil {
		return err
	}
	if have&^keep == 0 {
		return nil
	}
	keep &= have
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		bits := uint32(keep >> (32 * i) & math.MaxUint32)
		data[i] = unix.CapUserData{Effective: bits, Permitted: bits}
	}
	// Capabilities are per thread. New Go threads inherit those of this one.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno == syscall.ENOTSUP { // built with cgo, such as a test
		return errors.New("drop capabilities: build without cgo")
	}
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}
