package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/activities/watch"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/tracker/events"
)

// defaultLast is how much of a thread's time a trigger explains.
const defaultLast = time.Second

// Trigger implements api.Backend.
func (d *daemon) Trigger(ctx context.Context, req *api.TriggerRequest) (*api.Triggered, error) {
	if d.manager == nil {
		return nil, errors.New("the recorder is disabled: set recorder.enabled and restart tailcam")
	}
	t, err := d.newTrigger(ctx, req)
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
func (d *daemon) newTrigger(ctx context.Context, req *api.TriggerRequest) (*snapshot.Trigger, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", api.ErrBadTrigger, fmt.Errorf(format, args...))
	}
	t := &snapshot.Trigger{Reason: req.Reason, Last: defaultLast}
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
	globs := req.Globs()
	thread := req.PID != 0 || req.TID != 0 || req.Self
	switch {
	case t.After > snapshot.MaxAfter:
		return nil, bad("after: must be at most %s", snapshot.MaxAfter)
	case req.PID < 0 || req.TID < 0:
		return nil, bad("pid and tid must be positive")
	case thread && len(globs) > 0:
		return nil, bad("pid, tid and self name a thread: they cannot be combined with %s", strings.Join(slices.Sorted(maps.Keys(globs)), ", "))
	case len(globs) > 0:
		th, of, err := d.requestedTarget(ctx, globs)
		if err != nil {
			return nil, bad("%w", err)
		}
		t.Target = target(th)
		worksFor(t.Target, of)
		return t, nil
	case !thread && req.Last != "":
		return nil, bad("last: whose? Name a thread with tid or pid, or where it runs with cgroup, unit, container, pod, namespace, activity")
	case !thread:
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

// Who a runtime says that containers are may come so late, and is asked for so often.
const (
	runtimePatience = 2 * time.Second
	runtimePause    = 250 * time.Millisecond
)

// requestedTarget finds a thread as those of rules are found.
func (d *daemon) requestedTarget(ctx context.Context, globs map[string]string) (*process.Thread, *watch.Record, error) {
	spec, err := rules.NewTarget(globs)
	if err != nil {
		return nil, nil, err
	}
	if len(spec.Activity) > 0 && d.requests == nil {
		return nil, nil, fmt.Errorf("activity: %w", d.whyNoActivities())
	}
	for end := time.Now().Add(runtimePatience); ; {
		th, of, found := d.triggerTarget(&spec, nil)
		switch {
		case found:
			return th, of, nil
		case !spec.Places.NeedRuntime() || time.Now().After(end):
			var asked []string
			for _, key := range slices.Sorted(maps.Keys(globs)) {
				asked = append(asked, fmt.Sprintf("%s %q", key, globs[key]))
			}
			return nil, nil, fmt.Errorf("no thread now with %s", strings.Join(asked, ", "))
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(runtimePause):
		}
	}
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
