package perfetto

import (
	"fmt"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// current is what the writer knows of a CPU.
type current struct {
	on   trace.OnCPU
	prio int
	comm trace.Comm
}

// Inserted returns how many switches were written that are not in the trace, where the kernel
// left one out: the CPU is drawn as idle between the last event of one task and the first of
// another.
func (w *Writer) Inserted() uint64 { return w.inserted }

// follow notices switches that are missing: an event of another task than the one that the
// latest switch began. The kernel does not call tracepoints of a switch at times.
func (w *Writer) follow(ev *trace.Event) error {
	if ev.Type >= trace.DumpStart {
		return nil
	}
	c := w.current[ev.CPU]
	if c == nil {
		c = &current{}
		w.current[ev.CPU] = c
	}
	if before, unseen := c.on.Follow(ev); unseen {
		if err := w.insert(ev, &before, c); err != nil {
			return err
		}
		c.prio, c.comm = defaultPrio, trace.Comm{}
	}
	if b, ok := ev.Body.(trace.Switch); ok {
		c.prio, c.comm = b.NextPrio, b.NextComm
	}
	return nil
}

const defaultPrio = 120

// insert writes the switch from the task that is thought to run, and one to that of an event.
func (w *Writer) insert(ev *trace.Event, before *trace.OnCPU, c *current) error {
	written := w.written
	defer func() { w.inserted, w.written = w.inserted+w.written-written, written }()
	idle := trace.Comm{}
	copy(idle[:], fmt.Sprintf("swapper/%d", ev.CPU))
	next := trace.Comm{}
	if t, ok := w.tasks[ev.TID]; ok {
		copy(next[:len(next)-1], t.comm)
	}
	prio := defaultPrio
	if b, ok := ev.Body.(trace.Switch); ok {
		prio, next = b.PrevPrio, b.PrevComm
	}
	left := trace.Event{Type: trace.SchedSwitch, CPU: ev.CPU, TID: before.TID, Time: before.Last}
	if before.TID != 0 {
		left.Body = trace.Switch{PrevComm: c.comm, PrevPrio: c.prio, NextComm: idle, NextPrio: defaultPrio, Call: trace.CallNone}
		if err := w.ftrace(&left); err != nil {
			return err
		}
		if err := w.onCPU(&left, kindUnseen.track(uint64(ev.CPU)), "switches not seen",
			&slice{kind: instant, name: w.who(before.TID) + " left this CPU, unseen"}); err != nil {
			return err
		}
	}
	if ev.TID == 0 {
		return nil
	}
	came := trace.Event{Type: trace.SchedSwitch, CPU: ev.CPU, Time: ev.Time}
	came.Body = trace.Switch{PrevComm: idle, PrevPrio: defaultPrio, NextComm: next, NextTID: ev.TID, NextPrio: prio, Call: trace.CallNone}
	return w.ftrace(&came)
}
