package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/activities"
)

const (
	// ActivitiesPath is where processes open activities, by POST with ActivitiesUpgrade.
	ActivitiesPath = "/v1/activities"
	// ActivitiesUpgrade is the protocol of the connection from then on: it carries the
	// descriptors of the maps, then messages of the process, and its end is that of the process.
	ActivitiesUpgrade = "tailcam-activities"

	// reopenTime is how long a process waits that has closed, or become another program, until
	// nothing is left of what it had. Clients wait for 5 s.
	reopenTime = 4 * time.Second
	// Messages of one process are read so far apart, and each by so many times what looking at
	// the one before took: more wait in its socket.
	messageEvery, messageShare, messagePause = time.Millisecond, 20, 100 * time.Millisecond
)

// ErrActivitiesDisabled is why nothing is known of activities.
var ErrActivitiesDisabled = errors.New("activities are disabled: set activities.enabled and restart tailcam")

// errActivitiesFailed is matched by the errors of ActivitiesFailed.
var errActivitiesFailed = errors.New("activities are enabled, but the daemon could not begin with them")

// ActivitiesFailed is the error of activities that are enabled and could not be loaded, in
// one line.
func ActivitiesFailed(why error) error {
	return fmt.Errorf("%w: %s", errActivitiesFailed, strings.Join(strings.Fields(why.Error()), " "))
}

// Opener makes the maps of processes that open activities. Errors are those of
// activities.Activities, ErrActivitiesDisabled, or ActivitiesFailed.
type Opener interface {
	OpenActivities(o *activities.Opening) (OpenedActivities, error)
}

// OpenedActivities are the maps of a process, until Close.
type OpenedActivities interface {
	Threads() int
	Tokens() int
	Attributes() int
	// Descriptors calls fn with those of the maps, which stay open until it returns.
	Descriptors(fn func(fds []int) error) error
	// Slow looks at a token of which its program says that it was slow.
	Slow(token uint32)
	Close()
}

// ServeActivities answers requests to open activities, and no others.
func ServeActivities(ctx context.Context, socket *Socket, opener Opener, opts *ServeOptions) error {
	s, mux := newServer(nil, opts), http.NewServeMux()
	s.opener = opener
	mux.HandleFunc("POST "+ActivitiesPath, s.openActivities)
	mux.HandleFunc("/", s.unknown)
	return s.serve(ctx, socket, s.guarded(mux))
}

// openActivities makes the maps of the peer, hands them over, and takes them back at the end
// of the connection.
func (s *server) openActivities(w http.ResponseWriter, r *http.Request) {
	p, status, err := s.open(r)
	if err != nil {
		if status == http.StatusUpgradeRequired {
			w.Header().Set("Upgrade", ActivitiesUpgrade)
		}
		s.fail(w, status, err)
		return
	}
	defer p.Close()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { conn.Close() })()
	if err := handOver(conn, p); err != nil {
		s.log.Debug("a process left before it had its maps", zap.Error(err))
		return
	}
	listenTo(conn, p)
}

// open has the maps made; status is that of err.
func (s *server) open(r *http.Request) (p OpenedActivities, status int, err error) {
	conn, ok := r.Context().Value(peerKey{}).(*limitedConn)
	switch {
	case r.Header.Get("Upgrade") != ActivitiesUpgrade:
		return nil, http.StatusUpgradeRequired, fmt.Errorf("ask for Upgrade: %s", ActivitiesUpgrade)
	case !ok:
		return nil, http.StatusForbidden, errors.New("who asks is not known")
	}
	o, err := opening(r)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	o.PID, o.UID, o.Wait = int(conn.peer.Pid), conn.peer.Uid, reopenTime
	if o.PidFD, err = peerPidFD(conn); err != nil {
		return nil, http.StatusForbidden, err
	}
	defer unix.Close(o.PidFD)
	p, err = s.opener.OpenActivities(o)
	return p, openStatus(err), err
}

// opening reads what a process asks for.
func opening(r *http.Request) (*activities.Opening, error) {
	o, query := &activities.Opening{}, r.URL.Query()
	for key, to := range map[string]*int{"threads": &o.Threads, "tokens": &o.Tokens} {
		text := query.Get(key)
		n, err := strconv.Atoi(text)
		if text != "" && (err != nil || n < 0) {
			return nil, fmt.Errorf("invalid %s %q: must be a number", key, text)
		}
		*to = n
	}
	switch text := query.Get("inherit"); text {
	case "", "0":
	case "1":
		o.Inherit = true
	default:
		return nil, fmt.Errorf("invalid inherit %q: must be 0 or 1", text)
	}
	return o, nil
}

func openStatus(err error) int {
	switch {
	case errors.Is(err, activities.ErrQuota):
		return http.StatusTooManyRequests
	case errors.Is(err, activities.ErrSize):
		return http.StatusBadRequest
	case errors.Is(err, activities.ErrIsOpen):
		return http.StatusConflict
	case errors.Is(err, ErrActivitiesDisabled), errors.Is(err, errActivitiesFailed), errors.Is(err, activities.ErrStopped):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// peerPidFD opens the process that has connected.
func peerPidFD(c *limitedConn) (fd int, err error) {
	conn, ok := c.Conn.(*net.UnixConn)
	if !ok || c.peer.Pid <= 0 {
		return -1, errors.New("your process is not seen from where the daemon is")
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(s uintptr) { fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD) }); e != nil {
		return -1, e
	}
	if errors.Is(err, unix.ENOPROTOOPT) { // Linux before 6.5
		return pidFD(c.peer)
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", c.peer.Pid, err)
	}
	return fd, nil
}

// pidFD opens a process by its number. Another may have the number by now: one of another
// user is refused, one of the same user gets maps whose connection has ended.
func pidFD(peer *syscall.Ucred) (fd int, err error) {
	if fd, err = unix.PidfdOpen(int(peer.Pid), 0); err != nil {
		return -1, fmt.Errorf("open process %d: %w", peer.Pid, err)
	}
	var st unix.Stat_t
	if err = unix.Stat("/proc/"+strconv.Itoa(int(peer.Pid)), &st); err == nil && st.Uid != peer.Uid {
		err = errors.New("it has ended")
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("open process %d: %w", peer.Pid, err), unix.Close(fd))
	}
	return fd, nil
}

// handOver answers with the descriptors. From then on the connection is none of those that
// users may have few of.
func handOver(conn net.Conn, p OpenedActivities) error {
	limited, ok := conn.(*limitedConn)
	if !ok {
		return errors.New("not a connection of this server")
	}
	limited.release()
	unixConn, ok := limited.Conn.(*net.UnixConn)
	if !ok {
		return errors.New("not a unix socket")
	}
	if err := conn.SetDeadline(time.Now().Add(closeTimeout)); err != nil {
		return err
	}
	reply := fmt.Sprintf("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
		"Tailcam-Abi: %d\r\nTailcam-Threads: %d\r\nTailcam-Tokens: %d\r\nTailcam-Attributes: %d\r\n\r\n",
		ActivitiesUpgrade, abi.ActivityAbi, p.Threads(), p.Tokens(), p.Attributes())
	err := p.Descriptors(func(fds []int) error {
		n, _, err := unixConn.WriteMsgUnix([]byte(reply), unix.UnixRights(fds...), nil)
		if err == nil && n < len(reply) {
			err = io.ErrShortWrite
		}
		return err
	})
	if err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// listenTo reads the messages of a process until its end: a token's index and generation.
// The maps alone are believed.
func listenTo(conn net.Conn, p OpenedActivities) {
	var message [8]byte
	for {
		if _, err := io.ReadFull(conn, message[:]); err != nil {
			return
		}
		began := time.Now()
		p.Slow(binary.NativeEndian.Uint32(message[:]))
		time.Sleep(min(max(messageEvery, messageShare*time.Since(began)), messagePause))
	}
}
