package perfetto

import (
	"fmt"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// current is what the writer knows of a CPU.
type current struct {
	tid, prio int
	comm      trace.Comm
	seen      uint64 // time of its latest event
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
		c = &current{tid: ev.TID}
		w.current[ev.CPU] = c
	}
	if c.tid != ev.TID {
		if err := w.insert(ev, c); err != nil {
			return err
		}
		*c = current{tid: ev.TID, prio: defaultPrio}
	}
	c.seen = ev.Time
	if b, ok := ev.Body.(trace.Switch); ok {
		c.tid, c.prio, c.comm = b.NextTID, b.NextPrio, b.NextComm
	}
	return nil
}

const defaultPrio = 120

// insert writes the switch from the task that is thought to run, and one to that of an event.
func (w *Writer) insert(ev *trace.Event, c *current) error {
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
	left := trace.Event{Type: trace.SchedSwitch, CPU: ev.CPU, TID: c.tid, Time: c.seen}
	if c.tid != 0 {
		left.Body = trace.Switch{PrevComm: c.comm, PrevPrio: c.prio, NextComm: idle, NextPrio: defaultPrio, Call: trace.CallNone}
		if err := w.ftrace(&left); err != nil {
			return err
		}
		if err := w.onCPU(&left, kindUnseen.track(uint64(ev.CPU)), "switches not seen",
			&slice{kind: instant, name: w.who(c.tid) + " left this CPU, unseen"}); err != nil {
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
