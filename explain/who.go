package explain

import (
	"fmt"
	"sort"
	"strings"
)

func (m *model) fact(tid int) (TaskFact, bool) {
	if m.names.Task == nil {
		return TaskFact{}, false
	}
	return m.names.Task(tid)
}

// kernelThread tells whether a task is one, as far as that is known.
func (m *model) kernelThread(tid int) bool {
	if f, ok := m.fact(tid); ok {
		return f.Kernel
	}
	t := m.tasks[tid]
	if t == nil {
		return false
	}
	comm := t.comm.String()
	for _, prefix := range []string{"kworker/", "ksoftirqd/", "migration/", "jbd2/", "rcu_", "kswapd", "kcompactd", "loop"} {
		if strings.HasPrefix(comm, prefix) {
			return true
		}
	}
	return false
}

func (m *model) whoTask(tid int) *Who {
	w := &Who{Kind: KindTask, TID: tid}
	if t := m.tasks[tid]; t != nil {
		w.PID, w.Comm, w.Prio = t.pid, t.comm.String(), t.prio
	}
	if f, ok := m.fact(tid); ok {
		if w.PID == 0 {
			w.PID = f.PID
		}
		if w.Comm == "" {
			w.Comm = f.Comm
		}
		w.Policy, w.Cgroup = f.Policy, f.Cgroup
	}
	w.Name = w.Comm
	if w.Name == "" {
		w.Name = "unknown"
	}
	w.Name = fmt.Sprintf("%s %d", w.Name, tid)
	return w
}

// whoRan is a task that had a CPU with a priority.
func (m *model) whoRan(tid, prio int) *Who {
	w := m.whoTask(tid)
	w.Prio = prio
	return w
}

func (m *model) whoCgroup(tid int) *Who {
	w := &Who{Kind: KindCgroup, Name: "its cgroup", TID: tid}
	if f, ok := m.fact(tid); ok && f.Cgroup != "" {
		w.Name, w.Cgroup = f.Cgroup, f.Cgroup
	}
	return w
}

func (m *model) whoOver(o *over) *Who {
	w := &Who{Kind: o.kind, Name: o.name}
	switch o.kind {
	case KindIRQ:
		if w.Name == "" {
			w.Name = fmt.Sprintf("irq %d", o.number)
		}
	case KindTimer:
		w.Function = m.function(o.function)
		if w.Name = w.Function; w.Name == "" {
			w.Name = "timer"
		}
	case KindHypervisor:
		w.Name = "the hypervisor"
	}
	return w
}

func (m *model) function(address uint64) string {
	if address == 0 || m.names.Function == nil {
		return ""
	}
	return m.names.Function(address)
}

func (m *model) device(dev uint32) string {
	if m.names.Device != nil {
		if name := m.names.Device(dev); name != "" {
			return name
		}
	}
	return fmt.Sprintf("%d:%d", dev>>20, dev&0xfffff)
}

func (m *model) syscall(nr int) string {
	if nr < 0 || m.names.Syscall == nil {
		return ""
	}
	return m.names.Syscall(nr)
}

// idleTime is a stretch in which some CPU was idle; name says which.
type idleTime struct {
	from, to uint64
	name     string
}

// idle returns when in [from, to] a CPU other than n was idle on which a task
// may run; nil if that was too short to matter.
func (m *model) idle(tid, n int, from, to uint64) []idleTime {
	var hard []int
	if f, ok := m.fact(tid); ok {
		hard = f.CPUs
	}
	var best []idleTime
	var most uint64
	for other, c := range m.cpus {
		if other == n {
			continue
		}
		var list []idleTime
		var sum uint64
		i := sort.Search(len(c.runs), func(i int) bool { return c.runs[i].to > from })
		for ; i < len(c.runs) && c.runs[i].from < to; i++ {
			r := &c.runs[i]
			if r.tid != 0 {
				continue
			}
			lo, hi := max(r.from, from), min(r.to, to)
			list = append(list, idleTime{from: lo, to: hi, name: m.idleWhy(other, hard)})
			sum += hi - lo
		}
		if sum > most || sum == most && best != nil && list != nil && list[0].name < best[0].name {
			best, most = list, sum
		}
	}
	if most < placement && most < to-from {
		return nil
	}
	return best
}

func (m *model) idleWhy(other int, may []int) string {
	if may == nil {
		return fmt.Sprintf("while CPU %d was idle", other)
	}
	for _, c := range may {
		if c == other {
			return fmt.Sprintf("while CPU %d, on which it may run, was idle", other)
		}
	}
	return fmt.Sprintf("while CPU %d was idle, on which it may not run", other)
}
