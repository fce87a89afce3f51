package provoke

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// TCP proves what is recorded of TCP's timers: SYNs to a listener whose accept queue is
// full are sent again, while threads wait for their sockets in connect, poll and epoll.
func TCP(t *testing.T, history *History) {
	history = history.with(t)
	listener := tcpSocket(t, 0)
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	assert.NilError(t, unix.Bind(listener, loopback))
	assert.NilError(t, unix.Listen(listener, 0))
	name, err := unix.Getsockname(listener)
	assert.NilError(t, err)
	at := name.(*unix.SockaddrInet4)
	assert.NilError(t, unix.Connect(tcpSocket(t, 0), at)) // the one that may wait

	const milliseconds = 1300 // a SYN is sent again after a second
	ways := map[string]func() error{
		"connect": func() error {
			fd := tcpSocket(t, 0)
			limit := unix.NsecToTimeval(milliseconds * 1e6)
			_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
			_ = unix.Connect(fd, at) // in progress, then
			return nil
		},
		"poll": func() error {
			fd := tcpSocket(t, unix.SOCK_NONBLOCK)
			_ = unix.Connect(fd, at)
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, milliseconds)
			return err
		},
		"epoll": func() error {
			fd := tcpSocket(t, unix.SOCK_NONBLOCK)
			_ = unix.Connect(fd, at)
			set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
			if err != nil {
				return err
			}
			defer unix.Close(set)
			if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT}); err != nil {
				return err
			}
			_, err = unix.EpollWait(set, make([]unix.EpollEvent, 1), milliseconds)
			return err
		},
	}
	conditions := map[string]func(trace.Event) bool{}
	waiters := map[string]*atomic.Int64{}
	for way := range ways {
		waiters[way] = new(atomic.Int64)
		conditions["a SYN that is sent again, waited for in "+way] = body(trace.TimerEntry, func(_ trace.Event, m trace.Timer) bool {
			x := &m.TCP
			return x.Kind == trace.TCPRetransmit && x.State == trace.TCPSynSent && int64(x.Waiter) == waiters[way].Load() &&
				x.Peer == at.Addr && x.Port == at.Port && x.Listener && x.AcceptQueue[0] > x.AcceptQueue[1]
		})
	}
	history.Until(func() {
		var all sync.WaitGroup
		for way, wait := range ways {
			all.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				waiters[way].Store(int64(unix.Gettid()))
				if err := wait(); err != nil && !errors.Is(err, unix.EINTR) {
					t.Errorf("%s: %v", way, err)
				}
			})
		}
		all.Wait()
	}, conditions)
}

// tcpSocket returns a socket that is closed at the end of the test.
func tcpSocket(t *testing.T, flags int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	assert.Check(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}
