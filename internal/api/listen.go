package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/dirs"
	"github.com/tailcam/tailcam/internal/lockfile"
)

const (
	dirMode    = 0o750
	socketMode = 0o660
	lockMode   = 0o640
	// lockSuffix of the socket's path is that of its lock.
	lockSuffix = ".lock"
	// maxPath is what sun_path of struct sockaddr_un holds, less its final zero.
	maxPath = 107
)

// ListenOptions say where the daemon listens. Nil means the defaults.
type ListenOptions struct {
	Path  string // default DefaultSocket
	Group string // default DefaultGroup
	Log   *zap.Logger
	// Public: everybody may connect, and enter the directory if it is made.
	Public bool
}

const (
	publicDirMode    = 0o755
	publicSocketMode = 0o666
)

func (o *ListenOptions) modes() (dir, socket fs.FileMode) {
	if o.Public {
		return publicDirMode, publicSocketMode
	}
	return dirMode, socketMode
}

// Socket is the daemon's listening socket, with the lock that keeps other daemons
// from its path. Clients that connect before Serve wait. Its methods may be called
// from any goroutine.
type Socket struct {
	Path string
	opts ListenOptions

	mu       sync.Mutex
	listener *net.UnixListener
	lock     *os.File
	file     fileID // of the socket, at its path
	closed   bool
}

// Listen takes the lock next to the socket's path, replaces a stale socket, and
// listens. The lock ends with the process; it is taken over from a daemon that was
// killed but has not exited. If another daemon holds it, the error has its pid.
func Listen(opts *ListenOptions) (*Socket, error) {
	o := listenDefaults(opts)
	if len(o.Path) > maxPath {
		return nil, fmt.Errorf("socket path %q is too long: must be at most %d bytes", o.Path, maxPath)
	}
	s := &Socket{Path: o.Path, opts: o}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// open makes the directory, takes the lock unless it is ours already, and listens.
// Under s.mu, except before anybody else knows s.
func (s *Socket) open() error {
	gid := groupID(s.opts.Group, s.opts.Log)
	dirMode, socketMode := s.opts.modes()
	if err := makeDir(filepath.Dir(s.Path), dirMode, gid, s.opts.Log); err != nil {
		return err
	}
	lock := s.lock
	if lock == nil || identify(s.lockPath()) != idOf(lock) {
		var err error
		if lock, err = takeLock(s.lockPath(), s.opts.Log); err != nil {
			return err
		}
	}
	listener, err := bind(s.Path, socketMode, gid, s.opts.Log)
	if err != nil {
		if lock != s.lock {
			lock.Close()
		}
		return err
	}
	if s.lock != nil && s.lock != lock {
		s.lock.Close() // of a file that was removed
	}
	s.lock, s.listener, s.file = lock, listener, identify(s.Path)
	return nil
}

// Restore listens again if the socket, its lock or their directory was removed: a daemon
// that nobody can reach seems to be down. It reports whether it had to. If something else
// is in the socket's place, it is left there and the error says so.
func (s *Socket) Restore() (restored bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	file, lock := identify(s.Path), identify(s.lockPath())
	switch {
	case file == s.file && lock == idOf(s.lock):
		return false, nil
	case file != fileID{} && file != s.file:
		return false, fmt.Errorf("%s was replaced: another daemon may be running; "+
			"stop it, or restart tailcam with another socket.path", s.Path)
	}
	before := s.listener
	if err := s.open(); err != nil {
		return false, err
	}
	_ = before.Close() // wakes Accept
	return true, nil
}

// Listener accepts connections at the path, also after Restore. Its Close is not
// that of the Socket, which must follow.
func (s *Socket) Listener() net.Listener { return listening{s} }

// Close stops listening, removes the socket and releases the lock. The empty lock
// file stays: if it were removed, two daemons could lock two files. What has taken
// the socket's place meanwhile stays, too.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var err error
	if identify(s.Path) == s.file {
		err = os.Remove(s.Path)
	}
	if e := s.listener.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, s.lock.Truncate(0), s.lock.Close())
}

// Holder returns the pid of the daemon that holds the lock of a socket's path, also of
// one that does not answer; 0: none does, or it is not known.
func Holder(path string) int {
	pid, err := lockfile.Holder(path + lockSuffix)
	if err != nil {
		return 0
	}
	return pid
}

// listening is a Socket as a net.Listener.
type listening struct{ *Socket }

// acceptRetry is the pause after Accept failed for lack of memory.
const acceptRetry = 100 * time.Millisecond

// Accept implements net.Listener.
func (l listening) Accept() (net.Conn, error) {
	for {
		current := l.current()
		conn, err := current.Accept()
		switch {
		case errors.Is(err, net.ErrClosed) && l.current() != current: // restored
		case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS): // net/http would give up
			time.Sleep(acceptRetry)
		default:
			return conn, err
		}
	}
}

// Close implements net.Listener.
func (l listening) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.listener.Close()
}

// Addr implements net.Listener.
func (l listening) Addr() net.Addr { return l.current().Addr() }

func (s *Socket) lockPath() string { return s.Path + lockSuffix }

func (s *Socket) current() *net.UnixListener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// fileID identifies a file independent of its path; zero: there is none.
type fileID struct{ dev, ino uint64 }

func identify(path string) fileID {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return fileID{}
	}
	return fileID{st.Dev, st.Ino}
}

func idOf(f *os.File) fileID {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return fileID{}
	}
	return fileID{st.Dev, st.Ino}
}

func listenDefaults(opts *ListenOptions) ListenOptions {
	var o ListenOptions
	if opts != nil {
		o = *opts
	}
	o.Path = cmp.Or(o.Path, DefaultSocket)
	o.Group = cmp.Or(o.Group, DefaultGroup)
	o.Log = cmp.Or(o.Log, zap.NewNop())
	return o
}

// groupID finds the group that may use the socket, or the daemon's own.
func groupID(name string, log *zap.Logger) int {
	g, err := user.LookupGroup(name)
	if err == nil {
		if gid, err := strconv.Atoi(g.Gid); err == nil {
			return gid
		}
	}
	log.Info("group does not exist: only root and the daemon's own group may use the socket",
		zap.String("group", name), zap.String("to_change", "groupadd --system "+name+", then restart tailcam"))
	return os.Getegid()
}

// makeDir creates the socket's directory. One that exists is left as it is,
// but for the group of one that an earlier daemon of ours has made.
func makeDir(dir string, mode fs.FileMode, gid int, log *zap.Logger) error {
	created, err := dirs.Make(dir, mode)
	if err != nil {
		return fmt.Errorf("create socket directory: %w", err)
	}
	if !created {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("socket directory: %w", err)
		}
		if !info.IsDir() {
			return fmt.Errorf("socket directory: %s is not a directory", dir)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm() != mode {
			return nil
		}
	}
	own(dir, mode, gid, log)
	return nil
}

// own sets group and mode. If that fails, the daemon works, but for fewer users.
func own(path string, mode fs.FileMode, gid int, log *zap.Logger) {
	if err := os.Chown(path, -1, gid); err != nil {
		log.Warn("cannot give the group access", zap.String("path", path), zap.Int("gid", gid), zap.Error(err))
	}
	if err := os.Chmod(path, mode); err != nil {
		log.Warn("cannot set the mode", zap.String("path", path), zap.Error(err))
	}
}

func takeLock(path string, log *zap.Logger) (*os.File, error) {
	f, err := lockfile.Take(path, &lockfile.Options{Mode: lockMode, TakenOver: func(pid int) {
		log.Warn("took over from a killed daemon that has not exited; its BPF programs may stay attached until then",
			zap.Int("pid", pid))
	}})
	if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
		who := ""
		if held.PID != 0 {
			who = fmt.Sprintf(", pid %d", held.PID)
		}
		return nil, fmt.Errorf("another daemon is running%s: stop it first, or use another socket", who)
	}
	return f, err
}

// bind replaces a stale socket; the lock is ours, so nobody listens on it.
func bind(path string, mode fs.FileMode, gid int, log *zap.Logger) (*net.UnixListener, error) {
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket: remove it, or use another path", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
		log.Info("removed a stale socket", zap.String("path", path))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("socket: %w", err)
	}
	// The mode of a socket before bind limits that of its file after, so it is
	// at no moment open to others, whatever the umask.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode)) }); e != nil {
			return e
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false) // Close removes it itself
	own(path, mode, gid, log)
	return listener, nil
}
