package flame

import (
	"fmt"

	"github.com/tailcam/tailcam/export/fields"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Kind is which time is added up.
type Kind string

// Kinds of time.
const (
	OutlierTime Kind = "outliers" // how long outliers took, by their stacks
	OnCPU       Kind = "oncpu"    // on a CPU, by task, and what interrupted it
	OffCPU      Kind = "offcpu"   // blocked or waiting for a CPU, by task, call and waker
)

// Kinds lists them.
var Kinds = []Kind{OutlierTime, OnCPU, OffCPU}

// Times adds up the time of tasks from a trace's events, in the order of time.
// What a task did before the trace first shows it is not known, and left out.
type Times struct {
	kind   Kind
	stacks *Stacks
	names  *fields.Names
	known  func(tid int) (pid int, comm string) // beside the trace; may be nil
	last   uint64
	cpus   map[int]*cpu
	tasks  map[int]*task
}

// NewTimes returns an empty account of OnCPU or OffCPU.
func NewTimes(kind Kind, names *fields.Names, known func(tid int) (pid int, comm string)) *Times {
	if known == nil {
		known = func(int) (int, string) { return 0, "" }
	}
	return &Times{
		kind: kind, stacks: NewStacks(), names: names, known: known, cpus: map[int]*cpu{}, tasks: map[int]*task{},
	}
}

// cpu is what one does.
type cpu struct {
	tid          int
	since        uint64
	irq, softirq string
}

// task is what is known of one.
type task struct {
	comm, id string
	pid      int
	call     string // system call that it is in, if these are recorded
	// While it is off its CPU:
	left, woken  uint64 // 0: not
	state, waker string
}

func (t *Times) task(tid int) *task {
	k := t.tasks[tid]
	if k == nil {
		k = &task{}
		pid, comm := t.known(tid)
		k.name(tid, pid, orUnknown(comm))
		t.tasks[tid] = k
	}
	return k
}

func (k *task) name(tid, pid int, comm string) {
	if k.id == "" || k.pid != pid && pid > 0 {
		k.pid = pid
		k.id = fmt.Sprint(tid)
		if pid > 0 && pid != tid {
			k.id = fmt.Sprintf("%d/%d", pid, tid)
		}
	}
	if k.comm != comm && comm != "" {
		k.comm = comm
	}
}

// Event takes the next event.
func (t *Times) Event(ev *trace.Event) {
	t.last = ev.Time
	if ev.Type >= trace.DumpStart { // of no CPU's current task
		if b, ok := ev.Body.(trace.TaskState); ok {
			t.task(b.TID).name(b.TID, b.PID, b.Comm.String())
		}
		return
	}
	c := t.cpus[ev.CPU]
	if c == nil {
		c = &cpu{tid: ev.TID, since: ev.Time}
		t.cpus[ev.CPU] = c
	}
	switch b := ev.Body.(type) {
	case trace.Switch:
		t.swtch(ev, c, &b)
	case trace.Wake:
		k := t.task(b.TID)
		k.name(b.TID, b.PID, b.Comm.String())
		if k.left != 0 && k.woken == 0 {
			k.woken, k.waker = ev.Time, t.waker(c, ev.TID)
		}
	case trace.IRQ:
		t.ran(c, ev.Time)
		c.irq = b.Name // empty at its exit
	case trace.Softirq:
		t.ran(c, ev.Time)
		if c.softirq = ""; ev.Type == trace.SoftirqEntry {
			c.softirq = linux.Softirq(b.Vec, "unknown")
		}
	case trace.Syscall:
		t.ran(c, ev.Time)
		k := t.task(ev.TID)
		if k.call = ""; ev.Type == trace.SyscallEntry {
			k.call = t.call(int(b.NR), b.Name)
		}
	case trace.Fork:
		t.task(b.ChildTID).name(b.ChildTID, b.ChildPID, b.ChildComm.String())
	case trace.Exec:
		t.ran(c, ev.Time)
		t.task(ev.TID).name(ev.TID, b.PID, b.Comm.String())
	case trace.Exit:
		t.task(ev.TID).name(ev.TID, b.PID, b.Comm.String())
	}
}

func (t *Times) call(nr int, name string) string {
	if name == "" && t.names.Syscall != nil {
		name = t.names.Syscall(nr)
	}
	if name == "" {
		name = fmt.Sprintf("syscall_%d", nr)
	}
	return name
}

func (t *Times) waker(c *cpu, tid int) string {
	switch {
	case c.irq != "":
		return "woken by irq " + c.irq
	case c.softirq != "":
		return "woken by softirq " + c.softirq
	case tid == 0:
		return "woken by an interrupt"
	}
	return "woken by " + t.task(tid).comm
}

// ran charges the time since the last change of a CPU to who had it.
func (t *Times) ran(c *cpu, now uint64) {
	if t.kind == OnCPU && c.tid != 0 && now > c.since {
		k := t.task(c.tid)
		irq, softirq := c.irq, c.softirq
		if irq != "" {
			irq = "irq " + irq + "_[k]"
		}
		if softirq != "" {
			softirq = "softirq " + softirq + "_[k]"
		}
		call := k.call
		if call != "" {
			call += "_[k]"
		}
		t.stacks.Add(now-c.since, k.comm, k.id, call, softirq, irq)
	}
	c.since = now
}

func (t *Times) swtch(ev *trace.Event, c *cpu, b *trace.Switch) {
	if ev.TID != 0 {
		t.task(ev.TID).name(ev.TID, 0, b.PrevComm.String())
	}
	t.ran(c, ev.Time)
	c.tid = b.NextTID
	if ev.TID != 0 {
		prev := t.task(ev.TID)
		if fields.State(b) == "X" || fields.State(b) == "Z" {
			delete(t.tasks, ev.TID) // its number may come again
		} else {
			prev.left, prev.woken, prev.waker, prev.state = ev.Time, 0, "", t.state(prev, b)
			if b.Preempted || b.Reported() == 0 {
				prev.woken, prev.state = ev.Time, ""
			}
		}
	}
	if b.NextTID != 0 {
		next := t.task(b.NextTID)
		next.name(b.NextTID, b.NextPID, b.NextComm.String())
		t.back(next, ev.Time)
	}
}

// state says what a task blocks in.
func (t *Times) state(k *task, b *trace.Switch) string {
	call := k.call
	switch {
	case b.Call >= 0 && call == "":
		call = t.call(b.Call, "")
	case b.Call == trace.CallException:
		call = "an exception"
	case b.Call == trace.CallFutex && call == "":
		call = "futex"
	}
	s := "blocked (" + fields.State(b) + ")"
	if b.IOWait {
		s = "blocked (" + fields.State(b) + ", I/O)"
	}
	if call != "" {
		s += " in " + call
	}
	return s
}

// back charges the time that a task was off its CPU.
func (t *Times) back(k *task, now uint64) {
	if t.kind == OffCPU && k.left != 0 {
		until := now
		if k.woken != 0 {
			until = k.woken
			t.stacks.Add(now-k.woken, k.comm, k.id, "runnable: waits for a CPU")
		}
		t.stacks.Add(until-k.left, k.comm, k.id, k.state, k.waker)
	}
	k.left = 0
}

// Close charges what goes on at the end of the trace, and returns it all.
func (t *Times) Close() *Stacks {
	for _, c := range t.cpus {
		t.ran(c, t.last)
	}
	for _, k := range t.tasks {
		t.back(k, t.last)
	}
	return t.stacks
}
