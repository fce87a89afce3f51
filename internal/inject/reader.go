package inject

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

const readSize = 4096

// reader reads what it is told, under the name it is told, and says how long
// each read took. It is not the process that serves the file system: killed
// together, neither could end.
func reader(w *wire) error {
	if err := lockThread(commIdle); err != nil {
		return err
	}
	// A real-time thread runs at once when its read is done. Without the
	// right to be one the truth is a little longer, not wrong.
	//nolint:errcheck // see above
	realTime(victimPriority)
	// Its own pages: O_DIRECT wants an aligned buffer.
	buf, err := unix.Mmap(-1, 0, readSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("get memory for direct reads: %w", err)
	}
	open := files{}
	return w.serve(func(order message) (message, error) {
		fd, err := open.get(order.Path, order.Direct)
		if err != nil {
			return message{}, err
		}
		if err := nameThread(order.Comm); err != nil {
			return message{}, err
		}
		// Waiting for the next order is nobody's latency.
		defer nameThread(commIdle) //nolint:errcheck // it could be named a moment ago
		answer := message{PID: os.Getpid(), TID: unix.Gettid()}
		answer.Start = linux.Monotonic()
		n, _, errno := syscall.RawSyscall6(unix.SYS_PREAD64, uintptr(fd),
			uintptr(unsafe.Pointer(&buf[0])), readSize, uintptr(order.Offset), 0, 0)
		answer.End = linux.Monotonic()
		if errno != 0 {
			return message{}, fmt.Errorf("read %s: %w", order.Path, errno)
		}
		if n != readSize {
			return message{}, fmt.Errorf("read %s: got %d bytes of %d", order.Path, n, readSize)
		}
		return answer, nil
	})
}

// files keeps what was opened once, so that opening is no part of a read.
type files map[string]int

func (f files) get(path string, direct bool) (int, error) {
	if fd, ok := f[path]; ok {
		return fd, nil
	}
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	if direct {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	f[path] = fd
	return fd, nil
}
