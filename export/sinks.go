package export

import (
	"fmt"
	"io"
	"slices"

	"github.com/tailcam/tailcam/explain"
	"github.com/tailcam/tailcam/export/flame"
	"github.com/tailcam/tailcam/export/perfetto"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// perfetto returns the writer of that format.
func (s *source) perfetto(w io.Writer, explained *explain.Report) sink {
	opts := &perfetto.Options{
		Env: s.reader.Env(), ClockOffset: s.reader.ClockOffset(), CPUs: s.reader.CPUs(), Names: s.names.fields,
		Outliers: s.meta.Outliers, Explained: explained,
	}
	slices.Sort(opts.CPUs)
	for i := range s.names.tasks {
		t := &s.names.tasks[i]
		opts.Tasks = append(opts.Tasks, perfetto.Task{
			TID: t.TID, PID: t.PID, PPID: t.PPID, Comm: t.Comm, Cmdline: t.Cmdline, Kernel: t.Kernel,
		})
	}
	return perfetto.NewWriter(w, opts)
}

// within lists the outliers that end in the span.
func (s *source) within() []events.Outlier {
	return slices.DeleteFunc(slices.Clone(s.meta.Outliers), func(o events.Outlier) bool { return !s.span.Has(o.EndMono) })
}

// stackSink adds up the time of tasks.
type stackSink struct {
	s     *source
	w     io.Writer
	o     *Options
	times *flame.Times
}

// Event implements sink.
func (k *stackSink) Event(ev *trace.Event) error {
	k.times.Event(ev)
	return nil
}

// Close implements sink.
func (k *stackSink) Close(func(int) uint64) error {
	return k.s.writeStacks(k.w, k.o, k.times.Close())
}

// titles say what a flame graph shows.
var titles = map[flame.Kind]string{
	flame.OutlierTime: "Outliers: their delays by rule, task and stack",
	flame.OnCPU:       "Time on CPUs by task",
	flame.OffCPU:      "Time off CPUs by task: blocked in, woken by, waiting for a CPU",
}

func (s *source) writeStacks(w io.Writer, o *Options, stacks *flame.Stacks) error {
	if o.Format == Folded {
		return stacks.WriteFolded(w)
	}
	return stacks.WriteSVG(w, titles[o.Time], fmt.Sprintf("%s, %s, Linux %s", s.meta.ID, s.meta.Host.Name, s.meta.Host.Kernel))
}
