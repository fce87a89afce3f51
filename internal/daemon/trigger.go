package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// defaultLast is how much of a thread's time a trigger explains.
const defaultLast = time.Second

// Trigger implements api.Backend.
func (d *daemon) Trigger(_ context.Context, req *api.TriggerRequest) (*api.Triggered, error) {
	if d.manager == nil {
		return nil, errors.New("the recorder is disabled: set recorder.enabled and restart tailcam")
	}
	t, err := d.newTrigger(req)
	if err != nil {
		return nil, err
	}
	taken, err := d.manager.Trigger(t)
	if err != nil {
		return nil, err
	}
	reply := &api.Triggered{ID: taken.ID}
	if req.NoWait {
		return reply, nil
	}
	done, err := taken.Wait()
	if err != nil {
		return nil, err
	}
	reply.Dir = done.Dir
	if len(done.Outliers) > 0 {
		reply.Explained = done.Outliers[0].Explained
	}
	return reply, nil
}

// newTrigger checks a request. Its errors wrap api.ErrBadTrigger.
func (d *daemon) newTrigger(req *api.TriggerRequest) (*snapshot.Trigger, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", api.ErrBadTrigger, fmt.Errorf(format, args...))
	}
	t := &snapshot.Trigger{Reason: req.Reason, Last: defaultLast}
	named := req.PID != 0 || req.TID != 0 || req.Self
	for _, f := range []struct {
		name, text string
		to         *time.Duration
		least      time.Duration
	}{{"last", req.Last, &t.Last, 1}, {"after", req.After, &t.After, 0}} {
		if f.text == "" {
			continue
		}
		v, err := time.ParseDuration(f.text)
		if err != nil || v < f.least {
			return nil, bad("%s: %q is no positive duration such as 800ms", f.name, f.text)
		}
		*f.to = v
	}
	switch {
	case t.After > snapshot.MaxAfter:
		return nil, bad("after: must be at most %s", snapshot.MaxAfter)
	case req.PID < 0 || req.TID < 0:
		return nil, bad("pid and tid must be positive")
	case !named && req.Last != "":
		return nil, bad("last: whose? Name a thread with tid or pid")
	case !named:
		return t, nil
	}
	pid, tid := req.PID, cmp.Or(req.TID, req.PID)
	if req.Self {
		var err error
		if pid, tid, err = d.callersThread(req); err != nil {
			return nil, bad("self: %w", err)
		}
	}
	th, err := d.hosts.Thread(pid, tid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bad("no %w", err)
	case err != nil:
		return nil, err
	}
	t.Target = target(&th)
	return t, nil
}

// callersThread finds the thread that the caller names as it knows itself, perhaps in another
// pid namespace.
func (d *daemon) callersThread(req *api.TriggerRequest) (pid, tid int, err error) {
	switch {
	case req.PID != 0:
		return 0, 0, errors.New("cannot be combined with pid: the process is the caller's")
	case req.Caller <= 0:
		return 0, 0, errors.New("the kernel does not say which process the caller is: name its thread as the daemon's pid namespace numbers it, without self")
	case req.TID == 0:
		return req.Caller, req.Caller, nil
	}
	tid = d.hosts.HostThread(req.Caller, req.TID)
	if tid == 0 {
		return 0, 0, fmt.Errorf("process %d, which opened the connection, has no thread that it knows as %d", req.Caller, req.TID)
	}
	return req.Caller, tid, nil
}

// target is what is known of a thread at a trigger.
func target(th *process.Thread) *events.Outlier {
	o := &events.Outlier{
		State: th.State,
		Task: events.Task{
			PID: th.PID, TID: th.TID, Comm: th.Comm, Kernel: th.Kernel,
			Cgroup: th.Cgroup, Container: th.Container, Cmdline: th.Cmdline,
		},
	}
	if name := rules.SyscallName(th.Syscall); th.Syscall >= 0 && name != "" {
		o.Syscall = &events.SyscallInfo{NR: th.Syscall, Name: name}
	}
	return o
}
