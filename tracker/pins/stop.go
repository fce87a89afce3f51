package pins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// managerTime is how long systemd may take to answer.
const managerTime = 2 * time.Second

// restarts asks systemd whether the stop of this service, which has been told to end, is one half of
// a restart. Both come as the same signal. The manager's own socket, beside that for notifications,
// needs no message bus.
func restarts(notifySocket string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), managerTime)
	defer cancel()
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(filepath.Join(filepath.Dir(notifySocket), "private")), dbus.WithContext(ctx))
	if err != nil {
		return false, fmt.Errorf("reach systemd: %w", err)
	}
	defer conn.Close() //nolint:errcheck // it was asked
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return false, fmt.Errorf("reach systemd: %w", err)
	}
	const manager, get = "org.freedesktop.systemd1", "org.freedesktop.DBus.Properties.Get"
	// What it reads together with the end of the authentication, systemd 252 leaves until more comes.
	for !answers(ctx, conn.Object(manager, "/org/freedesktop/systemd1")) && ctx.Err() == nil {
	}
	var unit dbus.ObjectPath
	err = conn.Object(manager, "/org/freedesktop/systemd1").CallWithContext(ctx, manager+".Manager.GetUnitByPID", 0, uint32(os.Getpid())).Store(&unit)
	if err != nil {
		return false, fmt.Errorf("ask systemd for this service: %w", err)
	}
	var job struct {
		ID   uint32
		Path dbus.ObjectPath
	}
	if err := conn.Object(manager, unit).CallWithContext(ctx, get, 0, manager+".Unit", "Job").Store(&job); err != nil {
		return false, fmt.Errorf("ask systemd what it does with this service: %w", err)
	}
	if job.ID == 0 { // somebody else has sent the signal: that is the end of the service, too
		return false, nil
	}
	var kind string
	if err := conn.Object(manager, job.Path).CallWithContext(ctx, get, 0, manager+".Job", "JobType").Store(&kind); err != nil {
		return false, fmt.Errorf("ask systemd what it does with this service: %w", err)
	}
	return kind != "stop", nil
}

// answers reports whether systemd answers at once.
func answers(ctx context.Context, o dbus.BusObject) bool {
	ctx, cancel := context.WithTimeout(ctx, managerTime/10)
	defer cancel()
	return o.CallWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", 0).Err == nil
}

// Sync implements Store: systemd closes its end of a pipe when it has read all that was sent before
// (sd_notify_barrier(3), 246). What was removed is closed then, or if that takes too long.
func (s *systemd) Sync() error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("wait for systemd: %w", err)
	}
	defer unix.Close(ends[0])
	s.mu.Lock()
	err := s.notify(ends[1], "BARRIER=1")
	removed := s.removed
	s.removed = nil
	s.mu.Unlock()
	_ = unix.Close(ends[1]) // systemd has its own
	if err == nil {
		err = hungUp(ends[0])
	}
	for _, f := range removed {
		_ = f.Close() // nothing is written to it
	}
	if err != nil {
		return fmt.Errorf("wait for systemd: %w", err)
	}
	return nil
}

// hungUp waits until nobody has the other end of a pipe.
func hungUp(fd int) error {
	for end := time.Now().Add(managerTime); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, max(0, int(time.Until(end).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("it has not read what it was sent within %s", managerTime)
		default:
			return nil
		}
	}
}
