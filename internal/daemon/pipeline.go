package daemon

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/action"
	"github.com/tailcam/tailcam/tracker"
)

// pipeline takes outliers from the kernel side as fast as they come, and in a
// second goroutine names them, gives them their snapshot, and publishes them.
func (d *daemon) pipeline(ctx context.Context) error {
	named := make(chan *tracker.Outlier, backlog)
	var handled sync.WaitGroup
	handled.Add(1)
	go func() {
		defer handled.Done()
		for o := range named {
			d.handle(o)
		}
	}()
	stop := context.AfterFunc(ctx, func() {
		if err := d.kernel.Stop(); err != nil {
			d.log.Warn("stop the kernel side", zap.Error(err))
		}
	})
	defer stop()
	defer handled.Wait()
	defer close(named)
	for {
		o, err := d.kernel.Read()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case named <- o:
		default:
			d.dropped.add(o.Rule)
			if o.WantsSnapshot {
				d.thaw()
			}
		}
	}
}

// handle is everything that happens to one outlier in user space.
func (d *daemon) handle(o *tracker.Outlier) {
	d.enrich(o)
	if d.manager != nil {
		d.manager.Submit(o, o.From)
	}
	d.feed.Publish(o)
	list := []tracker.Outlier{*o}
	d.act(rules.OnOutlier, list, action.Job{})
}

// enrich adds what only user space knows: names for addresses and ids.
func (d *daemon) enrich(o *tracker.Outlier) {
	// The identity first: a short-lived process may be gone soon. A process
	// that is gone already stays without.
	id, _ := d.hosts.Identity(o.Task.PID)
	o.Task.Cmdline, o.Task.Container = id.Cmdline, id.Container
	if o.Task.Cgroup == "" {
		o.Task.Cgroup = id.Cgroup
	}
	if o.Task.Container == "" {
		o.Task.Container = process.ContainerID(o.Task.Cgroup)
	}
	if o.UserFP != 0 && len(o.Raw.User) == 1 {
		// It is still where it was, or has gone on: then what is there already stays.
		o.Raw.User, _ = process.UserStack(o.Task.PID, o.Raw.User[0], o.UserSP, o.UserFP)
	}
	if len(o.Raw.User) > 0 {
		o.Stacks.User = d.symbols.User(o.Task.PID, o.Raw.User)
	}
	for _, s := range []struct {
		to   *[]tracker.Frame
		from []uint64
	}{{&o.Stacks.Kernel, o.Raw.Kernel}, {&o.Stacks.Waker, o.Raw.Waker}} {
		if len(s.from) == 0 {
			continue
		}
		named, err := d.symbols.Kernel(s.from)
		if err != nil {
			d.log.Debug("kernel symbols", zap.Error(err))
		}
		*s.to = withoutTracer(named)
	}
	d.nameLabels(o)
	for _, p := range o.Raw.Progress {
		named, err := d.symbols.Kernel(p.Kernel)
		if err != nil {
			d.log.Debug("kernel symbols", zap.Error(err))
		}
		o.Stacks.Progress = append(o.Stacks.Progress, tracker.Progress{AgeNS: p.AgeNS, State: p.State, Kernel: withoutTracer(named)})
	}
}

// withoutTracer cuts off what the tracing itself adds at the top of a stack
// that was taken of the current task. Its innermost frame is the BPF program,
// which may have no name yet: its symbol is younger than the table.
func withoutTracer(stack []tracker.Frame) []tracker.Frame {
	const most = 6 // frames that tracing adds
	own := []string{"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "__probestub_", "bpf_get_stack"}
	for i := min(len(stack), most) - 1; i >= 0; i-- {
		if slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(stack[i], p) }) {
			return stack[i+1:]
		}
	}
	return stack
}

// afterSnapshot starts the actions of a snapshot, and keeps it from retention
// until they have ended.
func (d *daemon) afterSnapshot(done snapshot.Done) {
	if done.Err != nil || len(done.Outliers) == 0 {
		return
	}
	d.act(rules.OnSnapshot, done.Outliers, action.Job{ID: done.ID, Dir: done.Dir, Done: d.store.Hold(done.ID)})
}

func (d *daemon) act(on string, outliers []tracker.Outlier, job action.Job) {
	job.Items = action.ItemsFor(on, outliers, d.rule)
	if len(job.Items) == 0 && job.Done == nil {
		return
	}
	d.actions.Submit(job)
}

// rule finds a rule as it was loaded last; nil: it is gone.
func (d *daemon) rule(name string) *rules.Rule {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.rules {
		if d.rules[i].Name == name {
			return &d.rules[i]
		}
	}
	return nil
}

// cgroups answers the kernel side's questions.
type cgroups struct{ table *process.Table }

func (c cgroups) CgroupPath(id uint64) (string, error) { return c.table.CgroupPath(id) }

// WalkCgroups walks nothing where there is no cgroup v2: all tasks are then in "/".
func (c cgroups) WalkCgroups(visit func(id uint64, path string)) error {
	err := c.table.Walk(visit)
	if errors.Is(err, process.ErrNoCgroup2) {
		return nil
	}
	return err
}

// dropCounter counts by rule.
type dropCounter struct {
	rules sync.Map // name to *atomic.Uint64
}

func (c *dropCounter) add(rule string) {
	n, _ := c.rules.LoadOrStore(rule, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
}

func (c *dropCounter) get(rule string) uint64 {
	n, ok := c.rules.Load(rule)
	if !ok {
		return 0
	}
	return n.(*atomic.Uint64).Load()
}
