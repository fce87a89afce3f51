package pins

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// storeVariable says that the service may keep descriptors: systemd sets it from 254 on,
// the shipped unit before.
const storeVariable = "FDSTORE"

// prefix of the names of our descriptors: others may be of sockets.
const prefix = "tailcam-"

// systemd keeps objects in the file descriptor store of the service: they stay while it
// restarts, and go when it is stopped or gives up.
type systemd struct {
	mu    sync.Mutex
	conn  *net.UnixConn
	files map[string]*os.File // of what is kept
	// removed are those that systemd may have yet. The kernel detaches what its last holder
	// closes, which is slow and nothing for process 1: see Sync.
	removed []*os.File

	manager *net.UnixAddr
}

// Offered reports whether systemd keeps descriptors for this service.
func Offered() bool {
	n := os.Getenv(storeVariable)
	return n != "" && n != "0" && os.Getenv("NOTIFY_SOCKET") != ""
}

// OpenSystemd takes over the descriptors that systemd has kept for this service. It
// removes the environment variables about them, and is to be called once.
func OpenSystemd() (Store, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"}) // Go sends no descriptors through one that is connected
	if err != nil {
		return nil, fmt.Errorf("reach systemd: %w", err)
	}
	manager := &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"} // a first @ is the kernel's NUL
	s := &systemd{conn: conn, manager: manager, files: map[string]*os.File{}}
	for _, f := range activation.Files(true) {
		name, ok := strings.CutPrefix(f.Name(), prefix)
		if !ok || s.files[name] != nil {
			_ = f.Close() // of nobody, or twice
			continue
		}
		s.files[name] = f
	}
	return s, nil
}

// notify sends a message, and a descriptor if it is not -1. It waits for a systemd that
// is busy, but not for ever.
func (s *systemd) notify(fd int, assignments ...string) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := s.conn.WriteMsgUnix([]byte(strings.Join(assignments, "\n")), rights, s.manager)
	return err
}

// Put implements Store. systemd must not poll the descriptor: those of most maps report
// an error at once (bpf_map_poll in kernel/bpf/syscall.c), which would end their keeping.
func (s *systemd) Put(name string, fd int) error {
	if !nameRule.MatchString(name) {
		return fmt.Errorf("keep %q: invalid name", name)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	f := os.NewFile(uintptr(own), prefix+name)
	if err := s.Remove(name); err != nil {
		return errors.Join(err, f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notify(own, "FDSTORE=1", "FDNAME="+prefix+name, "FDPOLL=0"); err != nil {
		return errors.Join(fmt.Errorf("give %s to systemd: %w", name, err), f.Close())
	}
	s.files[name] = f
	return nil
}

// Get implements Store.
func (s *systemd) Get(name string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return -1, fmt.Errorf("%s is not kept by systemd: %w", name, os.ErrNotExist)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	runtime.KeepAlive(f)
	return fd, err
}

// Remove implements Store.
func (s *systemd) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return nil
	}
	if err := s.notify(-1, "FDSTOREREMOVE=1", "FDNAME="+prefix+name); err != nil {
		return fmt.Errorf("take %s from systemd: %w", name, err)
	}
	delete(s.files, name)
	if s.removed = append(s.removed, f); len(s.removed) == 1 {
		go func() { _ = s.Sync() }() // what it closes in vain, systemd closes
	}
	return nil
}

// Names implements Store.
func (s *systemd) Names() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.files)), nil
}

// Lasting implements Store. In doubt, systemd sees to it when the service has stopped, but
// process 1 may then have to wait until the kernel has detached all of it.
func (s *systemd) Lasting() (bool, error) {
	again, err := restarts(s.manager.Name)
	return again || err != nil, err
}

// String implements Store.
func (s *systemd) String() string { return "systemd" }

// Close implements Store.
func (s *systemd) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.conn.Close()}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	for _, f := range s.removed {
		errs = append(errs, f.Close())
	}
	s.removed = nil
	s.files = map[string]*os.File{}
	return errors.Join(errs...)
}
