package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// minFiles is the minimum of file descriptors: the daemon uses some 150 with one
	// rule that takes snapshots, and one for each map and program.
	minFiles = 256
	// minSpace is the address space in bytes that the daemon's helpers reserve; most
	// of it is never used.
	minSpace = 8 << 30
)

// checkResources fails early if the daemon's resource limits are too low, and
// returns warnings about limits that degrade it.
func checkResources() (limited []string, err error) {
	var files, space unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &files),
		unix.Getrlimit(unix.RLIMIT_AS, &space)); err != nil {
		return nil, fmt.Errorf("read own limits: %w", err)
	}
	// Go has raised the soft limit to the hard one.
	return checkLimits(files.Max, space.Cur)
}

// checkLimits compares limits (descriptors, bytes) with what the daemon needs.
func checkLimits(files, space uint64) (limited []string, err error) {
	if files < minFiles {
		return nil, fmt.Errorf("open file limit %d is below %d: raise LimitNOFILE= of the service, or ulimit -Hn",
			files, minFiles)
	}
	if space < minSpace {
		limited = append(limited, fmt.Sprintf("address space is limited to %d MiB: "+
			"function names may be missing and snapshots late; "+
			"limit memory with MemoryMax= instead of LimitAS= or ulimit -v", space>>20))
	}
	return limited, nil
}

// adviseDescriptors adds advice to an error about too many open files.
func adviseDescriptors(err error) error {
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: raise LimitNOFILE= of the service, or ulimit -Hn (some rules need more files)", err)
	}
	return err
}
