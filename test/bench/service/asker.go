package main

import (
	"errors"
	"io"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/test/support/cpus"
)

// asker is a client that asks the same again and again, in a thread of its own without the
// runtime's poller, which would be in its way.
type asker struct {
	stop chan struct{}
	done chan error
	list []transaction
}

// mostNice has an asker run as soon as its answer is there, not when the other client has no more to do.
const mostNice = -20

// ask connects to a port of this machine, and has an asker ask there until it is ended.
func ask(port int, request string, on place) (*asker, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	a := &asker{stop: make(chan struct{}), done: make(chan error, 1)}
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}),
		unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	go func() {
		runtime.LockOSThread() // it ends with this goroutine
		err := errors.Join(on.keep(), cpus.BlockSignals(), unix.Setpriority(unix.PRIO_PROCESS, 0, mostNice))
		for err == nil {
			select {
			case <-a.stop:
				a.done <- unix.Close(fd)
				return
			default:
			}
			var t transaction
			if t, err = one(fd, []byte(request)); err == nil {
				a.list = append(a.list, t)
			}
		}
		a.done <- errors.Join(err, unix.Close(fd))
	}()
	return a, nil
}

// one asks once. Answers are so short that they come at once. The system calls are made without
// the runtime, which would look for other work each time.
func one(fd int, request []byte) (transaction, error) {
	var answer [4096]byte
	begin := time.Now()
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&request[0])), uintptr(len(request)))
	if errno == 0 {
		var n uintptr
		if n, _, errno = unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&answer[0])), uintptr(len(answer))); n == 0 {
			return transaction{}, io.EOF
		}
	}
	end := time.Now()
	if errno != 0 {
		return transaction{}, errno
	}
	return transaction{float64(end.Sub(begin).Nanoseconds()), end}, nil
}

// end has all that was asked, each with when its answer came; an error if one did not.
func (a *asker) end() ([]transaction, error) {
	close(a.stop)
	err := <-a.done
	return a.list, err
}
