package trace

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// past is what the records say of one task around a time.
type past struct {
	TaskState
	before uint64 // time of the event that made it so; 0: none
	next   uint64 // time of the first event after; 0: none
	born   uint64
	died   uint64
}

// pasts finds what tasks were doing at a time.
type pasts struct {
	at      uint64
	tasks   map[int]*past
	running int // task that is known to run on the CPU whose records are read; -1: none
}

// tasksAt returns the tasks that there were at a time, in the order of their
// ids: those of the records, and with them what else is known.
func tasksAt(streams []*stream, at uint64, known []KnownTask) []TaskState {
	p := pasts{at: at, tasks: make(map[int]*past)}
	for _, s := range streams {
		p.running = -1
		for i := range s.records {
			if r := &s.records[i]; r.known() {
				p.see(r)
			}
		}
	}
	for i := range known {
		k := &known[i]
		t := p.tasks[k.TID]
		if t == nil {
			// Mentioned by something that says nothing of its state.
			t = &past{TaskState: TaskState{Status: StatusWaiting}}
			p.tasks[k.TID] = t
		}
		if t.PID == 0 {
			t.PID = k.PID
		}
		if t.Comm == (Comm{}) {
			t.Comm = MakeComm(k.Comm)
		}
		t.PPID, t.Kernel = k.PPID, k.Kernel
	}
	delete(p.tasks, 0)
	out := make([]TaskState, 0, len(p.tasks))
	for _, tid := range slices.SortedFunc(maps.Keys(p.tasks), cmp.Compare[int]) {
		t := p.tasks[tid]
		if t.born >= at && t.born > 0 || t.died > 0 && t.died < at || t.PID <= 0 {
			continue
		}
		t.TID = tid
		out = append(out, t.TaskState)
	}
	return out
}

// see takes in one record; those of a CPU come in the order of time.
func (p *pasts) see(r *Record) {
	now, cpu := r.Time(), r.CPU()
	if r.Type() != SchedSwitch && r.TID() != p.running {
		p.running = r.TID()
		p.turn(p.running, now, cpu, StatusRunning, StatusRunning)
	}
	switch r.Type() {
	case SchedSwitch:
		state := r.u32(abi.OffSwitchPrevState)
		after := StatusWaiting
		if lttngState(state) == 0 || state&abi.PrevPreempted != 0 {
			after = StatusRunnable
		}
		t := p.turn(r.TID(), now, cpu, StatusRunning, after)
		p.named(t, now, r.comm(abi.OffSwitchPrevComm), 0)
		if state&taskDead != 0 {
			t.died = now
		}
		p.running = int(r.s32(abi.OffSwitchNextTid))
		t = p.turn(p.running, now, cpu, StatusRunnable, StatusRunning)
		p.named(t, now, r.comm(abi.OffSwitchNextComm), int(r.s32(abi.OffSwitchNextPid)))
	case SchedWaking, SchedWakeupNew:
		t := p.turn(int(r.s32(abi.OffWakeTid)), now, int(r.s32(abi.OffWakeTargetCpu)), StatusWaiting, StatusRunnable)
		p.named(t, now, r.comm(abi.OffWakeComm), int(r.s32(abi.OffWakePid)))
	case ProcessFork:
		p.named(p.task(r.TID()), now, r.comm(abi.OffProcessComm), int(r.s32(abi.OffProcessPid)))
		t := p.task(int(r.s32(abi.OffProcessChildTid)))
		t.born = now
		p.named(t, now, r.comm(abi.OffProcessChildComm), int(r.s32(abi.OffProcessChildPid)))
	case ProcessExec, ProcessExit:
		p.named(p.task(r.TID()), now, r.comm(abi.OffProcessComm), int(r.s32(abi.OffProcessPid)))
	case SyscallEntry, SyscallExit:
		p.task(r.TID()).PID = int(r.s32(abi.OffSyscallPid))
	}
}

func (p *pasts) task(tid int) *past {
	t := p.tasks[tid]
	if t == nil {
		t = &past{}
		p.tasks[tid] = t
	}
	return t
}

// turn notes that a task turned from one state to another. Of what was before
// the time the last counts, else the first of what came after.
func (p *pasts) turn(tid int, now uint64, cpu, from, to int) *past {
	t := p.task(tid)
	switch {
	case now < p.at && now >= t.before:
		t.before, t.Status, t.CPU = now, to, cpu
	case now >= p.at && t.before == 0 && (t.next == 0 || now < t.next):
		t.Status, t.CPU = from, cpu
	}
	if now >= p.at && (t.next == 0 || now < t.next) {
		t.next = now
	}
	return t
}

// named notes a task's name and process; turn came before it.
func (p *pasts) named(t *past, now uint64, comm Comm, pid int) {
	if t.Comm == (Comm{}) || now < p.at && now >= t.before || t.before == 0 && now <= t.next {
		t.Comm = comm
	}
	if pid > 0 {
		t.PID = pid
	}
}

type file struct{ pid, fd int }

// opening is where the trace shows that a process got a file descriptor.
type opening struct {
	in   *stream
	time uint64
	tid  int
}

// openers are the system calls that return a new file descriptor. fcntl may,
// too, but its end does not say what was asked.
var openers = []string{
	"open", "openat", "openat2", "creat", "open_by_handle_at", "socket", "accept", "accept4", "dup", "dup2", "dup3", "epoll_create",
	"epoll_create1", "eventfd", "eventfd2", "signalfd", "signalfd4", "timerfd_create", "inotify_init", "inotify_init1", "memfd_create",
	"pidfd_open", "pidfd_getfd", "perf_event_open", "bpf", "io_uring_setup", "userfaultfd", "fsopen", "fspick", "fsmount", "open_tree",
}

// openings finds the last opening after a time of each of the files.
func openings(streams []*stream, at uint64, files []FileState, name func(nr int) string) map[file]opening {
	if len(files) == 0 || name == nil {
		return nil
	}
	opens := make(map[uint32]bool)
	for nr := range 1024 {
		if slices.Contains(openers, name(nr)) {
			opens[uint32(nr)] = true
		}
	}
	out := make(map[file]opening)
	for _, s := range streams {
		for i := range s.records {
			r := &s.records[i]
			if r.Type() != SyscallExit || r.Time() < at || !r.known() || !opens[r.u32(abi.OffSyscallNr)] {
				continue
			}
			f := file{int(r.s32(abi.OffSyscallPid)), int(int64(r.u64(abi.OffSyscallRet)))}
			if old, ok := out[f]; !ok || old.time < r.Time() {
				out[f] = opening{s, r.Time(), r.TID()}
			}
		}
	}
	return out
}
