package explain

import (
	"cmp"
	"fmt"
	"sort"
	"strings"

	"github.com/tailcam/tailcam/internal/linux"
)

// whoKey identifies a culprit, so that pieces with the same one can be joined.
type whoKey struct {
	kind string
	name string
	id   int
	prio int
}

// who returns the culprit of a key, creating it if needed.
func (m *model) who(key whoKey, fill func(*Who)) *Who {
	if w := m.culprits[key]; w != nil {
		return w
	}
	w := &Who{Kind: key.kind, Name: key.name}
	fill(w)
	if len(m.culprits) < maxOpen {
		m.culprits[key] = w
	}
	return w
}

// taskInfo is what is known of a thread from outside the trace: nothing before all events are read,
// as it has to be waited for.
func (m *model) taskInfo(tid int) (TaskInfo, bool) {
	if m.names.Task == nil || tid <= 0 || m.reading {
		return TaskInfo{}, false
	}
	f, known := m.taskInfos[tid]
	if !known {
		got, ok := m.nameOf(tid)
		if !ok {
			got, ok = m.ofProcess(tid)
		}
		if ok {
			f = &got
		}
		if t := m.tasks[tid]; ok || t != nil && t.pid != 0 { // otherwise its process may be known later
			m.taskInfos[tid] = f
		}
	}
	if f == nil {
		return TaskInfo{}, false
	}
	return *f, true
}

// nameOf is what is known of a thread from outside the trace, which knows the last one of an id.
func (m *model) nameOf(tid int) (TaskInfo, bool) {
	if m.latest(threadID(tid)) != tid {
		return TaskInfo{}, false
	}
	return m.names.Task(threadID(tid))
}

// ofProcess is what is known of a thread that has ended, from its process: threads share its
// title, and all but those of threaded cgroups its cgroup.
func (m *model) ofProcess(tid int) (TaskInfo, bool) {
	t := m.tasks[tid]
	if t == nil || t.pid <= 0 || t.pid == threadID(tid) {
		return TaskInfo{}, false
	}
	p, ok := m.names.Task(t.pid)
	if !ok || p.Kernel {
		return TaskInfo{}, false
	}
	return TaskInfo{
		PID: t.pid, Comm: t.comm.String(), Title: p.Title, Exited: p.Exited, Cgroup: p.Cgroup, Place: p.Place,
		CPUCgroup: p.CPUCgroup, MemoryCgroup: p.MemoryCgroup, IOCgroup: p.IOCgroup,
	}, true
}

// hasEnded reports whether a thread is known to be no more.
func (m *model) hasEnded(tid int) bool {
	if f, ok := m.taskInfo(tid); ok && f.Exited || m.latest(threadID(tid)) != tid {
		return true
	}
	t := m.tasks[tid]
	return t != nil && t.ended()
}

var kernelNames = []string{
	"kworker/", "ksoftirqd/", "migration/", "jbd2/", "rcu", "kswapd", "kcompactd", "loop", "irq/", "ktimers/",
	"cpuhp/", "kthreadd", "khugepaged", "nvme", "scsi_", "dmcrypt", "xfs", "md", "napi/", "txg_", "btrfs-",
}

// kernelThread reports whether a task is known to be a kernel thread: by what is known from outside
// the trace, before all events are read by where it slept, or else by its name.
func (m *model) kernelThread(tid int) bool {
	if f, ok := m.taskInfo(tid); ok {
		return f.Kernel
	}
	t := m.tasks[tid]
	switch {
	case t == nil:
		return false
	case !m.reading || t.slept == notSlept || !m.callsOfSwitches:
	case t.slept == inCall:
		return false
	case t.pid == threadID(tid): // else a worker of a process
		return true
	}
	comm := t.comm.String()
	for _, prefix := range kernelNames {
		if strings.HasPrefix(comm, prefix) {
			return true
		}
	}
	return false
}

func (m *model) whoTask(tid int) *Who { return m.whoAtPrio(tid, 0) }

// whoIs is whoTask for a step of a path, which may be no task's.
func (m *model) whoIs(tid int) *Who {
	if tid == 0 {
		return m.whoUnknown(noThread)
	}
	return m.whoTask(tid)
}

// noThread is the name of work that no thread is known for.
const noThread = "no thread"

// whoAtPrio returns a task that ran with a priority; 0: its latest known one.
func (m *model) whoAtPrio(tid, prio int) *Who {
	return m.who(whoKey{kind: KindTask, id: tid, prio: prio}, func(w *Who) {
		w.TID, w.Prio = tid, prio
		if t := m.tasks[tid]; t != nil {
			w.PID, w.Comm = t.pid, t.comm.String()
			if prio == 0 {
				w.Prio = t.prio
			}
		}
		if comm := m.comms[tid]; comm != "" {
			w.Comm = comm
		}
		m.fillTaskInfo(w)
	})
}

// fillTaskInfo adds the name and other information from outside the trace.
func (m *model) fillTaskInfo(w *Who) {
	if f, ok := m.taskInfo(w.TID); ok && (!f.Exited || w.Comm == "" || w.Comm == f.Comm) {
		if w.PID == 0 {
			w.PID = f.PID
		}
		if w.Comm == "" {
			w.Comm = f.Comm
		}
		w.Policy, w.Cgroup, w.Title, w.Place = f.Policy, f.Cgroup, f.Title, f.Place
	}
	w.Name = strings.TrimSpace(fmt.Sprintf("%s %d", w.Called(), threadID(w.TID)))
	if w.Comm == "" {
		w.Name = fmt.Sprintf("task %d", threadID(w.TID))
	}
}

// whoSlow returns the task of an outlier.
func (m *model) whoSlow(o *Outlier) *Who {
	if o.Key != nil || o.Began != "" {
		return m.whoUnknown(noThread) // TID only passed by
	}
	w := *m.whoTask(o.TID)
	if w.Comm == "" || o.Comm != "" {
		w.Comm = o.Comm
	}
	if o.PID != 0 {
		w.PID = o.PID
	}
	switch m.fillTaskInfo(&w); {
	case o.TID == 0 && o.Track == "workqueue":
		w.Name = "a softirq" // where work without a worker runs
	case o.TID == 0 && (o.Track == "trigger" || o.Track == "activity"):
		w.Name = "no target"
	case o.TID == 0 && o.Track == "block" && o.Comm == "":
		w.Name = "an unknown task" // askers are shed: docs/budget.md
	case o.TID == 0:
		w.Name = "the idle task"
	}
	return &w
}

func (m *model) whoSelf(name string) *Who {
	return m.who(whoKey{kind: KindSelf, name: name}, func(*Who) {})
}

func (m *model) whoUnknown(name string) *Who {
	return m.who(whoKey{kind: KindUnknown, name: name}, func(*Who) {})
}

// quotaCgroup returns the cgroup whose CPU quota applies to a task.
func (f *TaskInfo) quotaCgroup() string {
	if f.CPUCgroup != "" {
		return f.CPUCgroup
	}
	return f.Cgroup
}

// throttledCgroup returns the cgroup whose CPU quota a task may have used up: the nearest with
// one, as far as that is known; "": not known. The root has none.
func (m *model) throttledCgroup(f *TaskInfo) string {
	own := f.quotaCgroup()
	if own == "/" {
		return "" // an exiting task, or one whose cgroup of v1 is not known
	}
	if k, ok := m.cpuQuota(own); ok {
		return k.cgroup
	}
	return own
}

// whoQuota returns the cgroup whose CPU quota a task has used up.
func (m *model) whoQuota(t *task) *Who {
	f, _ := m.taskInfo(t.tid)
	at := m.throttledCgroup(&f)
	k, ok := m.cpuQuota(at)
	return m.whoLimit(k, ok, at)
}

// whoFreezer returns the cgroup that may be frozen with a task. Of version 1 it is not known.
func (m *model) whoFreezer(t *task) *Who {
	f, _ := m.taskInfo(t.tid)
	if f.CPUCgroup != "" || f.MemoryCgroup != "" || f.IOCgroup != "" {
		return m.whoCgroup("")
	}
	return m.whoCgroup(f.Cgroup)
}

// whoLimit returns the cgroup whose limit was hit; if that is not known, one that may be it.
func (m *model) whoLimit(k knob, known bool, otherwise string) *Who {
	if !known {
		return m.whoCgroup(otherwise)
	}
	limit := k.name + " " + k.value
	return m.who(whoKey{kind: KindCgroup, name: k.cgroup + " " + limit}, func(w *Who) {
		w.Name, w.Cgroup, w.Limit = k.cgroup, k.cgroup, limit
	})
}

// whoCgroup returns the culprit for a cgroup; "": unknown.
func (m *model) whoCgroup(path string) *Who {
	name := "its cgroup"
	if path != "" {
		name = path
	}
	return m.who(whoKey{kind: KindCgroup, name: name}, func(w *Who) { w.Cgroup = path })
}

// whoMemory returns what is short of memory: a cgroup or the machine.
func (m *model) whoMemory(t *task, e *memoryWait) *Who {
	if e.memcg {
		return m.whoMemoryLimit(t, "memory.high", "memory.max", "memory.limit_in_bytes")
	}
	return m.who(whoKey{kind: KindMemory, name: "the machine's memory"}, func(*Who) {})
}

// whoMemoryLimit returns the cgroup whose memory is at one of these limits.
func (m *model) whoMemoryLimit(t *task, names ...string) *Who {
	f, _ := m.taskInfo(t.tid)
	at := cmp.Or(f.MemoryCgroup, f.Cgroup)
	k, ok := m.memoryLimit(at, names...)
	return m.whoLimit(k, ok, at)
}

func (m *model) whoTimer(function string) *Who {
	name := "timer"
	if function != "" {
		name = function
	}
	return m.who(whoKey{kind: KindTimer, name: name}, func(w *Who) { w.Function = function })
}

func (m *model) whoContext(x *context) *Who {
	switch x.kind {
	case KindTimer:
		return m.whoTimer(m.function(x.function))
	case KindIRQ:
		name := strings.Join(strings.Fields(x.name), " ") // drivers choose it
		if name == "" {
			name = fmt.Sprint(x.number)
		}
		return m.who(whoKey{kind: KindIRQ, name: name, id: x.number}, func(*Who) {})
	}
	return m.who(whoKey{kind: x.kind, name: x.name}, func(*Who) {})
}

// whoNetwork returns a network device and the local sender of the packet, if known.
func (m *model) whoNetwork(device string, sender int) *Who {
	name := "the network"
	if device != "" {
		name += " (" + device + ")"
	}
	return m.who(whoKey{kind: KindNetwork, name: name, id: sender}, func(w *Who) {
		w.Device = device
		if sender != 0 {
			s := m.whoTask(sender)
			w.TID, w.PID, w.Comm, w.For = s.TID, s.PID, s.Comm, s
		}
	})
}

// whoKernel returns a kernel thread on behalf of the task that last woke it by that
// time, unless that is the slow task.
func (m *model) whoKernel(tid, slow int, at uint64) *Who {
	k := m.whoTask(tid)
	t := m.tasks[tid]
	if t == nil {
		return k
	}
	i := sort.Search(len(t.wakers), func(i int) bool { return t.wakers[i].at > at })
	if i == 0 || t.wakers[i-1].tid == slow || t.idleBetween(t.wakers[i-1].at, at) || m.gapIn(t.wakers[i-1].at, at) < at {
		return k
	}
	by := t.wakers[i-1].tid
	return m.who(whoKey{kind: KindTask, name: "for", id: tid, prio: by}, func(w *Who) {
		*w = *k
		w.For = m.whoTask(by)
	})
}

// taskNoLoad marks the uninterruptible sleep of a thread of the kernel that has nothing to do.
const taskNoLoad = 0x400

// idleBetween reports whether a thread of the kernel had nothing to do between two times.
func (t *task) idleBetween(from, to uint64) bool {
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].from > from })
	for ; i < len(t.segments) && t.segments[i].from < to; i++ {
		if s := &t.segments[i]; s.state == blocked && (s.bits&taskUninterruptible == 0 || s.bits&taskNoLoad != 0) {
			return true
		}
	}
	return false
}

// whoWork returns a work item on behalf of the task that queued it.
func (m *model) whoWork(x *work) *Who {
	return m.who(whoKey{kind: KindWork, name: m.workName(x.function), id: x.worker, prio: x.queuer}, func(w *Who) {
		w.Function, w.TID = m.function(x.function), x.worker
		if t := m.tasks[x.worker]; t != nil {
			w.Comm = t.comm.String()
		}
		if x.queuer != 0 {
			w.For = m.whoTask(x.queuer)
		}
	})
}

// whoDevice returns a request's device.
func (m *model) whoDevice(r *request) *Who {
	name := ""
	if m.names.Device != nil {
		name = m.names.Device(r.dev)
	}
	if name == "" {
		name = linux.Disk(r.dev)
	}
	return m.who(whoKey{kind: KindDevice, name: name}, func(w *Who) { w.Device = name })
}

// whoOwner returns the task that submitted a request.
func (m *model) whoOwner(r *request) *Who {
	if r.tid == 0 {
		return m.whoUnknown("an unknown task")
	}
	if t := m.tasks[r.tid]; t != nil && t.comm.String() != "" {
		return m.whoTask(r.tid)
	}
	return m.who(whoKey{kind: KindTask, name: r.comm.String(), id: r.tid}, func(w *Who) {
		w.TID, w.Comm = r.tid, r.comm.String()
		m.fillTaskInfo(w)
	})
}

// whoWoke returns the waker of a task.
func (m *model) whoWoke(wk *wake) *Who {
	if wk.ctx != nil && wk.ctx.kind == KindSoftirq && wk.sender != 0 && wk.device == "lo" {
		return m.whoTask(wk.sender)
	}
	if wk.ctx != nil {
		return m.whoContext(wk.ctx)
	}
	switch {
	case wk.tid == 0:
		return m.whoUnknown("an interrupt that is not recorded")
	case wk.work != nil:
		return m.whoWork(wk.work)
	}
	return m.whoTask(wk.tid)
}

func (m *model) function(address uint64) string {
	if address == 0 || m.names.Function == nil {
		return ""
	}
	return m.names.Function(address)
}

// timerFunction is function for that of a timer, also while events are read.
func (m *model) timerFunction(address uint64) string {
	if m.names.Timer == nil {
		return m.function(address)
	}
	return m.names.Timer(address)
}

func (m *model) syscall(nr int) string {
	if nr < 0 || m.names.Syscall == nil {
		return ""
	}
	return m.names.Syscall(nr)
}
