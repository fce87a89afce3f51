package perfetto

import (
	"fmt"
	"slices"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/snapshot/trace"
	"github.com/tailcam/tailcam/tracker/events"
)

// slow is an outlier that has begun.
type slow struct {
	number uint64
	state  bool // a state has begun on its track
}

// outlier returns what snapshot.json says of one, or nil.
func (w *Writer) outlier(n uint64, rule string) *events.Outlier {
	if n < uint64(len(w.opts.Outliers)) && w.opts.Outliers[n].Rule == rule {
		return &w.opts.Outliers[n]
	}
	return nil
}

// marker begins or ends an outlier: once among the outliers, once beside its
// thread, where the states of the thread lie below it.
func (w *Writer) marker(ev *trace.Event, m *trace.Marker) error {
	if ev.Type == trace.OutlierExit {
		return w.outlierEnds(ev, m)
	}
	o := w.outlier(m.Outlier, m.Rule)
	s := slice{name: fmt.Sprintf("%s %s %s", m.Rule, w.who(ev.TID), term.Duration(m.DelayNS)), args: w.facts(o, m)}
	if o != nil {
		s.callstack = w.callstack(&o.Stacks)
	}
	onThread := ev.TID > 0 && m.Track != "irq" && m.Track != "softirq"
	if onThread {
		s.from = []uint64{w.arrow()}
	}
	all := kindOutlier.track(m.Outlier)
	if err := w.grouped(all, groupOutliers, "outliers"); err != nil {
		return err
	}
	if err := w.begins(ev.Time, all, &s); err != nil || !onThread {
		return err
	}
	beside := kindSlow.track(m.Outlier)
	if err := w.threaded(beside, ev.TID, "outlier "+m.Rule); err != nil {
		return err
	}
	w.active[ev.TID] = append(w.active[ev.TID], &slow{number: m.Outlier})
	return w.begins(ev.Time, beside, &slice{name: s.name, to: s.from, args: message{}.textArg("rule", m.Rule)})
}

func (w *Writer) outlierEnds(ev *trace.Event, m *trace.Marker) error {
	if o := w.outlier(m.Outlier, m.Rule); o != nil && w.open[kindOutlier.track(m.Outlier)] > 0 {
		if stack := w.callstack(&o.Stacks); stack != 0 {
			sample := message{}.uint(1, uint64(ev.CPU)).uint(2, uint64(m.PID)).uint(3, uint64(ev.TID)).uint(4, stack)
			if err := w.packet(packetSample, ev.Time, sample); err != nil {
				return err
			}
		}
	}
	if err := w.ends(ev.Time, kindOutlier.track(m.Outlier)); err != nil {
		return err
	}
	list := w.active[ev.TID]
	i := slices.IndexFunc(list, func(s *slow) bool { return s.number == m.Outlier })
	if i < 0 {
		return nil
	}
	s := list[i]
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(w.active, ev.TID)
	} else {
		w.active[ev.TID] = list
	}
	if s.state {
		if err := w.ends(ev.Time, kindSlow.track(m.Outlier)); err != nil {
			return err
		}
	}
	return w.ends(ev.Time, kindSlow.track(m.Outlier))
}

// facts are what one reads when the slice is clicked.
func (w *Writer) facts(o *events.Outlier, m *trace.Marker) message {
	a := message{}.textArg("rule", m.Rule).textArg("track", m.Track).intArg("delay_ns", m.DelayNS)
	if r := w.opts.Explained; r != nil && m.Outlier < uint64(len(r.Outliers)) && r.Outliers[m.Outlier].Rule == m.Rule {
		a = a.textArg("verdict", r.Outliers[m.Outlier].Verdict).textArg("advice", r.Outliers[m.Outlier].Advice)
	}
	if o == nil {
		return a
	}
	a = a.intArg("threshold_ns", o.ThresholdNS).textArg("cause", string(o.Cause)).textArg("cgroup", o.Task.Cgroup)
	if o.Waker != nil {
		a = a.textArg("waker", fmt.Sprintf("%s[%d]", o.Waker.Name(), o.Waker.TID)).textArg("waker_context", o.Waker.Context)
	}
	if o.OnCPU != nil {
		a = a.textArg("ran_instead", fmt.Sprintf("%s[%d]", o.OnCPU.Name(), o.OnCPU.TID))
	}
	if o.Syscall != nil {
		a = a.textArg("syscall", o.Syscall.Label())
	}
	if o.Block != nil {
		a = a.textArg("device", o.Block.Device).textArg("op", o.Block.Op).intArg("sector", int64(o.Block.Sector))
	}
	return a.listArg("kernel_stack", events.StackLines(o.Stacks.Kernel, o.Stacks.KernelSources())).
		listArg("user_stack", events.StackLines(o.Stacks.User, o.Stacks.UserSources())).
		textArg("user_stack_note", o.Stacks.UserNote()).
		listArg("waker_stack", events.StackLines(o.Stacks.Waker, o.Stacks.WakerSources()))
}

// states draws what a slow task does while it is slow, with an arrow from who
// wakes it.
func (w *Writer) states(ev *trace.Event) error {
	if len(w.active) == 0 {
		return nil
	}
	switch b := ev.Body.(type) {
	case trace.Switch:
		if list := w.active[ev.TID]; len(list) > 0 && ev.TID != 0 {
			if err := w.state(ev.Time, list, &slice{name: w.left(&b)}); err != nil {
				return err
			}
		}
		if list := w.active[b.NextTID]; len(list) > 0 {
			return w.state(ev.Time, list, &slice{name: fmt.Sprintf("running on CPU %d", ev.CPU)})
		}
	case trace.Wake:
		if list := w.active[b.TID]; len(list) > 0 {
			return w.wake(ev, &b, list)
		}
	}
	return nil
}

// left says why a task is not running any more.
func (w *Writer) left(b *trace.Switch) string {
	switch {
	case b.Throttled:
		return "throttled: its cgroup is out of quota"
	case b.Preempted || b.Reported() == 0:
		return fmt.Sprintf("runnable, %s[%d] runs instead", b.NextComm, b.NextTID)
	}
	name := "blocked " + fields.State(b)
	if b.Call >= 0 {
		call := fmt.Sprintf("system call %d", b.Call)
		if w.names.Syscall != nil {
			if s := w.names.Syscall(b.Call); s != "" {
				call = s
			}
		}
		name += " in " + call
	}
	if b.Call == trace.CallFutex {
		name += " in futex"
	}
	if b.IOWait {
		name += ", for I/O"
	}
	return name
}

func (w *Writer) wake(ev *trace.Event, b *trace.Wake, list []*slow) error {
	id := w.arrow()
	name := "wakes " + fmt.Sprintf("%s[%d]", b.Comm, b.TID)
	s := slice{kind: instant, name: name, from: []uint64{id}}
	var track uint64
	context := w.where[ev.CPU].String()
	var err error
	if ev.TID > 0 && context == "" {
		track = kindWakes.track(uint64(ev.TID))
		err = w.threaded(track, ev.TID, "wakes")
	} else {
		track = kindCPUWakes.track(uint64(ev.CPU))
		if context != "" {
			s.name = context + " " + name
		}
		err = w.cpuTrack(track, ev.CPU, "wakes")
	}
	if err == nil {
		err = w.begins(ev.Time, track, &s)
	}
	if err != nil {
		return err
	}
	return w.state(ev.Time, list, &slice{name: fmt.Sprintf("runnable on CPU %d", b.TargetCPU), to: []uint64{id}})
}

// state ends the states before and begins this one.
func (w *Writer) state(now uint64, list []*slow, s *slice) error {
	for _, o := range list {
		track := kindSlow.track(o.number)
		if o.state {
			if err := w.ends(now, track); err != nil {
				return err
			}
		}
		if err := w.begins(now, track, s); err != nil {
			return err
		}
		o.state = true
	}
	return nil
}

// context is what interrupts the task of a CPU.
type context struct {
	irq     string // handler that runs
	softirq string
	timer   bool
}

// String is empty if nothing does. It takes nil.
func (c *context) String() string {
	switch {
	case c == nil:
		return ""
	case c.irq != "":
		return "irq " + c.irq
	case c.timer:
		return "timer"
	case c.softirq != "":
		return "softirq " + c.softirq
	}
	return ""
}

func (w *Writer) context(ev *trace.Event) {
	switch ev.Type {
	case trace.IRQEntry, trace.IRQExit, trace.SoftirqEntry, trace.SoftirqExit, trace.HrtimerEntry, trace.HrtimerExit:
	default:
		return
	}
	c := w.where[ev.CPU]
	if c == nil {
		c = &context{}
		w.where[ev.CPU] = c
	}
	switch b := ev.Body.(type) {
	case trace.IRQ:
		c.irq = b.Name // empty at its exit
	case trace.Softirq:
		if c.softirq = ""; ev.Type == trace.SoftirqEntry {
			c.softirq = linux.Softirq(b.Vec, "unknown")
		}
	case trace.Hrtimer:
		c.timer = ev.Type == trace.HrtimerEntry
	}
}
