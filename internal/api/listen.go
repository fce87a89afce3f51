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
	"syscall"

	"go.uber.org/zap"

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
}

// Socket is the daemon's listening socket, with the lock that keeps other daemons
// from its path. Clients that connect before Serve wait.
type Socket struct {
	Path     string
	listener *net.UnixListener
	lock     *os.File
}

// Listen takes the lock next to the socket's path, replaces a stale socket, and
// listens. The lock ends with the process; it is taken over from a daemon that was
// killed but has not exited. If another daemon holds it, the error has its pid.
func Listen(opts *ListenOptions) (*Socket, error) {
	o := listenDefaults(opts)
	if len(o.Path) > maxPath {
		return nil, fmt.Errorf("socket path %q is too long: must be at most %d bytes", o.Path, maxPath)
	}
	gid := groupID(o.Group, o.Log)
	if err := makeDir(filepath.Dir(o.Path), gid, o.Log); err != nil {
		return nil, err
	}
	lock, err := takeLock(o.Path+lockSuffix, o.Log)
	if err != nil {
		return nil, err
	}
	listener, err := bind(o.Path, gid, o.Log)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Socket{Path: o.Path, listener: listener, lock: lock}, nil
}

// Listener is the listening socket itself, for servers of something else than this
// package's protocol.
func (s *Socket) Listener() net.Listener { return s.listener }

// Close stops listening, removes the socket and releases the lock. The empty lock
// file stays: if it were removed, two daemons could lock two files. A daemon whose
// lock was taken over leaves the other's socket alone.
func (s *Socket) Close() error {
	err := os.Remove(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
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
func makeDir(dir string, gid int, log *zap.Logger) error {
	created, err := dirs.Make(dir, dirMode)
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
		if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm() != dirMode {
			return nil
		}
	}
	own(dir, dirMode, gid, log)
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
func bind(path string, gid int, log *zap.Logger) (*net.UnixListener, error) {
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
		if e := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), socketMode) }); e != nil {
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
	own(path, socketMode, gid, log)
	return listener, nil
}
