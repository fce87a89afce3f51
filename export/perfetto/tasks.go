package perfetto

import (
	"fmt"
	"strings"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// task is what the reader was told of a task.
type task struct {
	pid  int
	comm string
}

// kthreadd is the parent of kernel threads.
const kthreadd = 2

// tree tells of all tasks that are known beforehand.
func (w *Writer) tree(now uint64) error {
	if len(w.opts.Tasks) == 0 {
		return nil
	}
	var m message
	processes := map[int]bool{}
	for i := range w.opts.Tasks {
		t := &w.opts.Tasks[i]
		w.tasks[t.TID] = task{t.PID, t.Comm}
		if t.TID == t.PID {
			processes[t.PID] = true
			m = m.sub(1, process(t))
		}
	}
	for i := range w.opts.Tasks { // of whose threads the trace names others only
		if t := &w.opts.Tasks[i]; !processes[t.PID] && t.Cmdline != "" {
			processes[t.PID] = true
			m = m.sub(1, process(t))
		}
	}
	for i := range w.opts.Tasks {
		t := &w.opts.Tasks[i]
		m = m.sub(2, message{}.int(1, int64(t.TID)).text(2, t.Comm).int(3, int64(t.PID)))
	}
	return w.packet(packetTree, now, m)
}

func process(t *Task) message {
	m := message{}.int(1, int64(t.PID))
	switch {
	case t.Kernel:
		m = m.int(2, kthreadd)
	case t.PPID > 0:
		m = m.int(2, int64(t.PPID))
	}
	args := strings.Fields(t.Cmdline)
	for _, arg := range args {
		m = m.text(3, arg)
	}
	if len(args) == 0 {
		m = m.text(3, t.Comm)
	}
	return m.bool(8, t.Kernel).bool(9, len(args) == 0)
}

// learn tells the reader of tasks when the trace first names them.
func (w *Writer) learn(ev *trace.Event) error {
	switch b := ev.Body.(type) {
	case trace.Switch:
		return w.told(ev.Time, b.NextTID, b.NextPID, &b.NextComm)
	case trace.Wake:
		return w.told(ev.Time, b.TID, b.PID, &b.Comm)
	case trace.Fork:
		return w.told(ev.Time, b.ChildTID, b.ChildPID, &b.ChildComm)
	case trace.Exec:
		return w.told(ev.Time, ev.TID, b.PID, &b.Comm)
	case trace.Exit:
		err := w.told(ev.Time, ev.TID, b.PID, &b.Comm)
		delete(w.tasks, ev.TID) // the number may come again
		return err
	case trace.TaskState:
		return w.told(ev.Time, b.TID, b.PID, &b.Comm)
	case trace.Marker:
		return w.told(ev.Time, ev.TID, b.PID, &b.Comm)
	}
	return nil
}

func (w *Writer) told(now uint64, tid, pid int, comm *trace.Comm) error {
	if tid <= 0 || pid <= 0 {
		return nil
	}
	name := cut(comm)
	old, ok := w.tasks[tid]
	if ok && old.pid == pid && old.comm == string(name) {
		return nil
	}
	w.tasks[tid] = task{pid, string(name)}
	m := message{}
	if tid == pid && (!ok || old.pid != pid) {
		m = m.sub(1, process(&Task{PID: pid, Comm: string(name)}))
	}
	m = m.sub(2, message{}.int(1, int64(tid)).text(2, string(name)).int(3, int64(pid)))
	if err := w.packet(packetTree, now, m); err != nil || !ok || old.pid != pid {
		return err
	}
	return w.renamed(now, tid, old.comm, string(name))
}

// renamed draws that a task has another name from now on; Perfetto shows the last one.
func (w *Writer) renamed(now uint64, tid int, from, to string) error {
	track := kindNames.track(uint64(tid))
	if err := w.threaded(track, tid, "names"); err != nil {
		return err
	}
	return w.begins(now, track, &slice{kind: instant, name: fmt.Sprintf("%s is called %s", from, to)})
}

// cut is a comm's bytes; it does not allocate.
func cut(c *trace.Comm) []byte {
	for i, b := range c {
		if b == 0 {
			return c[:i]
		}
	}
	return c[:]
}
