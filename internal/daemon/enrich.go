package daemon

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/tracker/events"
)

// Time limits of naming one outlier. What is not known by then is left out: an
// event says [unknown] rather than to come late.
const (
	symbolTime = time.Second // of its user stack
)

// enrich adds what only user space knows: names for addresses and ids. What
// cannot take long comes first, and each part is known as soon as it is found.
// Several may run at once, of different outliers.
func (d *daemon) enrich(o *events.Outlier) {
	// The identity first: a short-lived process may be gone soon. A process
	// that is gone already stays without.
	id, _ := d.hosts.IdentityOf(process.Seen{PID: o.Task.PID, TID: o.Task.TID, Comm: o.Task.Comm, At: o.EndMono})
	o.Enrichment.Learn(func(o *events.Outlier) {
		o.Task.Cmdline, o.Task.Container = id.Cmdline, id.Container
		if o.Task.Cgroup == "" {
			o.Task.Cgroup = id.Cgroup
		}
		if o.Task.Container == "" {
			o.Task.Container = process.ContainerID(o.Task.Cgroup)
		}
	})
	d.enrichKernel(o)
	if o.UserFP != 0 && len(o.Raw.User) == 1 {
		d.readStack(o)
	}
	if len(o.Raw.User) == 0 {
		return
	}
	s := d.symbols.User(o.Task.PID, o.Raw.User)
	o.Enrichment.Learn(func(o *events.Outlier) {
		o.Stacks.User = s.Frames
		if from := sourcesOf(s); from != nil {
			all := events.Sources{User: from}
			if o.Stacks.Sources != nil {
				all.Kernel, all.Waker = o.Stacks.Sources.Kernel, o.Stacks.Sources.Waker
			}
			o.Stacks.Sources = &all
		}
	})
}

// enrichKernel names what is of the kernel: no process can make that take long.
func (d *daemon) enrichKernel(o *events.Outlier) {
	var sources events.Sources
	var kernel, waker []events.Frame
	kernel, sources.Kernel = d.nameKernel(o.Raw.Kernel)
	waker, sources.Waker = d.nameKernel(o.Raw.Waker)
	labels := d.nameLabels(o)
	var progress []events.Progress
	for _, p := range o.Raw.Progress {
		named, err := d.symbols.KernelNames(p.Kernel)
		if err != nil {
			d.log.Debug("kernel symbols", zap.Error(err))
		}
		progress = append(progress, events.Progress{AgeNS: p.AgeNS, State: p.State, Kernel: named[tracerFrames(named):]})
	}
	o.Enrichment.Learn(func(o *events.Outlier) {
		o.Stacks.Kernel, o.Stacks.Waker, o.Stacks.Progress, o.Labels = kernel, waker, progress, labels
		if sources.Kernel != nil || sources.Waker != nil {
			o.Stacks.Sources = &sources
		}
	})
}

// readStack reads the user stack of a task that is still where it was. If it
// has gone on, what is there already stays. Reading its memory waits for what
// the task may itself wait for.
func (d *daemon) readStack(o *events.Outlier) {
	pid, ip, sp, fp := o.Task.PID, o.Raw.User[0], o.UserSP, o.UserFP
	if stack, err := d.symbols.Memory(pid, ip, sp, fp); err == nil && len(stack) > 0 {
		o.Enrichment.Learn(func(o *events.Outlier) { o.Raw.User = stack })
	}
}

// nameKernel names a kernel stack, without what the tracing itself adds to it.
func (d *daemon) nameKernel(addrs []uint64) ([]events.Frame, []events.Source) {
	if len(addrs) == 0 {
		return nil, nil
	}
	s, err := d.symbols.Kernel(addrs)
	if err != nil {
		d.log.Debug("kernel symbols", zap.Error(err))
	}
	own := tracerFrames(s.Frames)
	sources := sourcesOf(s)
	if sources != nil {
		sources = sources[own:]
	}
	return s.Frames[own:], sources
}

// tracerFrames counts what the tracing itself adds at the top of a stack that
// was taken of the current task. Its innermost frame is the BPF program, which
// may have no name yet: its symbol is younger than the table.
func tracerFrames(stack []events.Frame) int {
	const most = 6 // frames that tracing adds
	own := []string{"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "__probestub_", "bpf_get_stack"}
	for i := min(len(stack), most) - 1; i >= 0; i-- {
		if slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(stack[i], p) }) {
			return i + 1
		}
	}
	return 0
}

// sourcesOf are the sources of a stack in the form of events; nil if none is known.
func sourcesOf(s symbols.Stack) []events.Source {
	if s.Sources == nil {
		return nil
	}
	out := make([]events.Source, len(s.Sources))
	for i, from := range s.Sources {
		out[i] = events.Source{File: from.File, Line: from.Line}
		for _, f := range from.Inlined {
			out[i].Inlined = append(out[i].Inlined, events.Inlined(f))
		}
	}
	return out
}
