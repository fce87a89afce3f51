package trigger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
)

// psi is the open triggers of a rule. See Documentation/accounting/psi.rst in the kernel.
type psi struct {
	where    string // "of the machine", or of a cgroup
	triggers []rules.PSITrigger
	files    []*os.File
	wake     int // eventfd that ends the wait
}

func openPSI(s *rules.PSISource, cgroupDir func(string) (string, error)) (source, error) {
	p := &psi{where: "of the machine", triggers: s.Triggers, wake: -1}
	dir, suffix := "/proc/pressure", ""
	if s.Cgroup != "" {
		d, err := cgroupDir(s.Cgroup)
		if err != nil {
			return nil, fmt.Errorf("watch the pressure of cgroup %s: %w", s.Cgroup, err)
		}
		dir, suffix, p.where = d, ".pressure", "of "+s.Cgroup
	}
	for i := range s.Triggers {
		t := &s.Triggers[i]
		f, err := openTrigger(filepath.Join(dir, t.Resource+suffix), t)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("watch %s pressure %s: %w", t.Resource, p.where, err)
		}
		p.files = append(p.files, f)
	}
	var err error
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.close()
		return nil, fmt.Errorf("watch pressure: %w", err)
	}
	return p, nil
}

// openTrigger opens a file and arms it. Without O_NONBLOCK in the flags, os.File leaves the
// descriptor alone: Go's poller does not wait for POLLPRI.
func openTrigger(path string, t *rules.PSITrigger) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		// Until "sched/psi: Allow unprivileged polling of N*2s period" (6.4), at open.
		return nil, fmt.Errorf("%w: needs CAP_SYS_RESOURCE; with systemd, install the drop-in triggers.conf", err)
	case errors.Is(err, unix.EROFS):
		return nil, fmt.Errorf("%w: with systemd, install the drop-in triggers.conf", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, fmt.Errorf("%w: pressure stall information is disabled: boot with psi=1", err)
	case err != nil:
		return nil, err
	}
	if _, err := unix.Write(int(f.Fd()), []byte(t.String()+"\x00")); err != nil {
		_ = f.Close() // not armed
		if errors.Is(err, unix.EINVAL) {
			// Since that commit, the capability is for the timers of other windows.
			return nil, fmt.Errorf("%w: trigger %q: without CAP_SYS_RESOURCE, the window must be a multiple of 2s", err, t)
		}
		return nil, fmt.Errorf("trigger %q: %w", t, err)
	}
	return f, nil
}

// watch waits in the kernel, with a thread of its own.
func (p *psi) watch(ctx context.Context, fire func(*Event)) error {
	fds := []unix.PollFd{{Fd: int32(p.wake), Events: unix.POLLIN}}
	for _, f := range p.files {
		fds = append(fds, unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLPRI})
	}
	var waking sync.WaitGroup
	waking.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer waking.Done()
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes it
	})
	defer func() {
		if !stop() {
			waking.Wait() // before the eventfd is closed
		}
	}()
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for pressure: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		for i := range p.files {
			t := &p.triggers[i]
			switch got := fds[i+1].Revents; {
			case got&unix.POLLERR != 0: // of a cgroup: it was removed
				return fmt.Errorf("wait for %s pressure %s: it was removed", t.Resource, p.where)
			case got&unix.POLLPRI != 0:
				fire(&Event{Reason: p.reason(i), Time: t.Window})
			}
		}
	}
}

// reason says what a trigger has noticed, and the average pressure now.
func (p *psi) reason(i int) string {
	t := &p.triggers[i]
	s := fmt.Sprintf("%s pressure %s: %s stalled for %s within %s", t.Resource, p.where, t.Kind, t.Stall, t.Window)
	buf := make([]byte, 512)
	n, err := p.files[i].ReadAt(buf, 0)
	if err != nil && n == 0 {
		return s
	}
	for line := range strings.Lines(string(buf[:n])) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == t.Kind {
			s += ", " + fields[1]
		}
	}
	return s
}

func (p *psi) close() {
	for _, f := range p.files {
		_ = f.Close() // disarms the trigger
	}
	if p.wake >= 0 {
		_ = unix.Close(p.wake)
	}
}
