package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// minFiles is how many descriptors the daemon cannot do without: it has some 150
	// with one rule that takes snapshots, and each map and program is one.
	minFiles = 256
	// minSpace is the address space that the daemon's helpers reserve, most of which
	// is never used: bytes.
	minSpace = 8 << 30
)

// checkResources tells before anything is loaded why the limits that the daemon
// was started with would make it fail, and returns what it does less well with.
func checkResources() (limited []string, err error) {
	var files, space unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_NOFILE, &files), unix.Getrlimit(unix.RLIMIT_AS, &space)); err != nil {
		return nil, fmt.Errorf("read own limits: %w", err)
	}
	// Go has raised the soft limit to the hard one.
	return checkLimits(files.Max, space.Cur)
}

// checkLimits compares limits (descriptors, bytes) with what the daemon wants.
func checkLimits(files, space uint64) (limited []string, err error) {
	if files < minFiles {
		return nil, fmt.Errorf("at most %d open files are allowed, %d at least are needed: raise LimitNOFILE= of the service, or ulimit -Hn", files, minFiles)
	}
	if space < minSpace {
		limited = append(limited, fmt.Sprintf("the address space is limited to %d MiB: names of functions may stay unknown, and snapshots be late; "+
			"limit memory by MemoryMax= instead of LimitAS= or ulimit -v", space>>20))
	}
	return limited, nil
}

// adviseDescriptors adds to an error what to do when descriptors have run out.
func adviseDescriptors(err error) error {
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w (each rule with programs of its own takes some: raise LimitNOFILE= of the service, or ulimit -Hn)", err)
	}
	return err
}
