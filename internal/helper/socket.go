package helper

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// pair returns a connected pair of SOCK_SEQPACKET sockets.
func pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket for a helper: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "helper"), os.NewFile(uintptr(fds[1]), "helper"), nil
}

// connection takes over one end of a pair. Both ends are polled by Go's runtime: a call that
// blocks in the kernel holds a thread, and has the runtime's monitor look at it each 20 us.
func connection(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("connect to a helper: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("connect to a helper: %s is a %T", f.Name(), c)
	}
	return u, nil
}

// passed is the connection that this process was started with as a descriptor.
func passed(fd uintptr) (*net.UnixConn, error) { return connection(os.NewFile(fd, "helper")) }
