package daemon

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tailcam/tailcam/internal/helper"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/tracker/events"
)

// Time limits of naming one outlier. What takes longer stays [unknown].
const (
	symbolTimeout = time.Second // of its user stack
	// copyTimeout bounds the wait for a copy of a stack that is sent after its outlier,
	// if reading the kernel side is delayed.
	copyTimeout = 100 * time.Millisecond
)

// enrich adds what only user space knows: symbols and identity. Fast lookups come
// first, and each result is available at once. It may run concurrently for different
// outliers.
func (d *daemon) enrich(o *events.Outlier) {
	d.learnContext(o)
	d.learnActivity(o)
	d.tellPeers(o)
	// Identity first: the process may exit soon. If it has exited, it stays unknown.
	id, _ := d.hosts.IdentityOf(process.Seen{PID: o.Task.PID, TID: o.Task.TID, Comm: o.Task.Comm, At: o.EndMono})
	cgroup := cmp.Or(o.Task.Cgroup, id.Cgroup)
	container := cmp.Or(id.Container, process.ContainerID(cgroup))
	at := d.place(cgroup, container, 0)
	o.Enrichment.Learn(func(o *events.Outlier) {
		o.Task.Cmdline, o.Task.Title, o.Task.Container = cmp.Or(id.Cmdline, o.Task.Cmdline), id.Title, container
		o.Task.Cgroup, o.Task.Place = cgroup, at
	})
	d.learnAttributes(o)
	d.learnRequestAttributes(o)
	d.identifyPeers(o)
	defer d.awaitPlaces(o)
	d.enrichKernel(o)
	if o.User != nil {
		d.unwind(o)
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

// enrichKernel looks up kernel symbols; no process can delay that.
func (d *daemon) enrichKernel(o *events.Outlier) {
	var sources events.Sources
	var kernel, waker []events.Frame
	kernel, sources.Kernel = d.nameKernel(o.Raw.Kernel)
	waker, sources.Waker = d.nameKernel(o.Raw.Waker)
	labels := d.nameLabels(o)
	work := d.nameWork(o)
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
		o.Work = work
		if sources.Kernel != nil || sources.Waker != nil {
			o.Stacks.Sources = &sources
		}
	})
}

// unwind finds the user stack of a task. Reading its memory, which the kernel side could
// not copy if the task had not run yet, may block on what the task itself waits for.
func (d *daemon) unwind(o *events.Outlier) {
	const ticks = time.Second / 100 // USER_HZ, of /proc/PID/stat
	u := o.User
	t := &helper.Thread{
		PID: o.Task.PID, TID: o.Task.TID, Start: u.StartNS / uint64(ticks), Switches: u.Switches,
		Registers: u.Registers[:], Narrow: u.Narrow,
	}
	m := u.Memory.Wait(copyTimeout)
	t.Base, t.Memory = m.Base, m.Data
	s := d.symbols.UserStack(t)
	u.Memory.Forget() // the outlier is remembered
	o.Enrichment.Learn(func(o *events.Outlier) {
		o.Raw.User = s.Addrs
		o.Stacks.Approximate, o.Stacks.UserMissing = s.Approximate, s.Missing
	})
}

// nameKernel symbolizes a kernel stack without the frames of tracing.
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

// tracerFrames counts the innermost frames that belong to tracing. The BPF program's
// own frame may have no symbol yet.
func tracerFrames(stack []events.Frame) int {
	const most = 6 // frames added by tracing
	own := []string{"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "__probestub_", "bpf_get_stack"}
	for i := min(len(stack), most) - 1; i >= 0; i-- {
		if slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(stack[i], p) }) {
			return i + 1
		}
	}
	return 0
}

// sourcesOf converts the sources of a stack; nil: none known.
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
