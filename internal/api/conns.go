package api

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/text"
)

// Bounds of what clients may keep open. Each connection is one descriptor and
// one or two goroutines.
const (
	maxConns      = 256
	reservedConns = 64 // for root
	maxRefusals   = 16 // connections that get a reply saying why, at once
	refusalTime   = time.Second
)

// limitedListener limits the connections of each user. Those beyond the limit get
// an error reply, or are closed.
type limitedListener struct {
	net.Listener
	conns    *quota
	guard    *guard.Guard
	refusals chan struct{}
}

func limit(l net.Listener, conns *quota, g *guard.Guard) *limitedListener {
	return &limitedListener{Listener: l, conns: conns, guard: g, refusals: make(chan struct{}, maxRefusals)}
}

// Accept implements net.Listener. Errors are those of the listener: when file
// descriptors run out, net/http backs off for up to a second.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(conn)
		if err != nil {
			conn.Close() // the client is gone
			continue
		}
		if l.conns.take(peer.Uid) {
			return &limitedConn{Conn: conn, peer: peer, release: sync.OnceFunc(func() { l.conns.release(peer.Uid) })}, nil
		}
		select {
		case l.refusals <- struct{}{}:
			go func() {
				defer func() { <-l.refusals }()
				_ = l.guard.Do(guard.Request, func() error { refuse(conn, peer.Uid); return nil }) // it is logged
			}()
		default:
			conn.Close()
		}
	}
}

// refuse answers a connection's first request.
func refuse(conn net.Conn, uid uint32) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(refusalTime)) != nil {
		return
	}
	// A client ignores a reply that comes before its request.
	request := make([]byte, 0, 4096)
	for !bytes.Contains(request, []byte("\r\n\r\n")) && len(request) < cap(request) {
		n, err := conn.Read(request[len(request):cap(request)])
		if err != nil {
			return
		}
		request = request[:len(request)+n]
	}
	body, err := text.Marshal(failure{Error: fmt.Sprintf(
		"too many connections of user %d, or of all users: close some, such as tailcam events -f", uid)})
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), len(body)+1, body)
}

// limitedConn releases its share of the quota when it is closed.
type limitedConn struct {
	net.Conn
	peer    *syscall.Ucred
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// peerOf returns the credentials of the peer, as the kernel reports them.
func peerOf(conn net.Conn) (*syscall.Ucred, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *syscall.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		peer, optErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return peer, errors.Join(err, optErr)
}
