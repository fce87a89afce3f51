// Package sandbox takes from the calling process what it does not need.
package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped is the address space beyond the memory limit: files are mapped whole,
// and Go reserves more than a GiB that it does not use.
const mapped = 6 << 30

// LimitMemory lets the calling process have no more than so many bytes of
// memory of its own (files that it maps are left out), and what it allocates last,
// which Parser bounds. Go's heap is kept well below that; whoever goes beyond ends:
// Go cannot go on without memory.
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

// Files is how many descriptors a process in the sandbox may have.
const Files = 256

// limitRest allows no core dumps, no growing files, and few descriptors.
func limitRest() error {
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

// Capabilities returns the set that the calling thread may use, as bits.
func Capabilities() (uint64, error) {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// Enter gives up all capabilities but keep (bits), ptrace by others of the same
// user, new privileges, and the system calls that the profile does not list.
// The process must have been started for it: threads that do not run Go code
// are not reached. ErrNoFilter: all but the system calls is given up.
func Enter(p Profile, keep uint64) error {
	runtime.LockOSThread() // the filter is spread to all threads from this one
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

// ErrNoFilter says that the system calls could not be limited, but all else was.
var ErrNoFilter = errors.New("no system call filter (the daemon's own one, or the kernel, lacks seccomp)")

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
	// Each thread has its own. Those of Go's threads to come are this one's.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno == syscall.ENOTSUP { // a program with C in it, such as a test
		return errors.New("drop capabilities: build without cgo")
	}
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// OpenFiles lists the descriptors that the calling process has.
func OpenFiles() ([]string, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
