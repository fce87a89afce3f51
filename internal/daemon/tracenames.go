package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tailcam/tailcam/internal/guard"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// Limits per trace.
const (
	maxNamedTasks    = 8192
	maxNamedFiles    = 16384
	taskNamesTimeout = 2 * time.Second
	fileNamesTimeout = time.Second
	socketsTimeout   = 200 * time.Millisecond
	siblingsTimeout  = 50 * time.Millisecond
	rtNamesTimeout   = 200 * time.Millisecond // of command lines, for real-time snapshots

	// boostNamesTimeout is for all that is looked up on an overloaded machine, if the process
	// is raised for a snapshot: it is not, for long. What comes last has leastTimeout at least.
	boostNamesTimeout   = 75 * time.Millisecond
	boostSocketsTimeout = 20 * time.Millisecond
	leastTimeout        = 5 * time.Millisecond

	maxKernelFrames = 32768
	maxUserFrames   = 1024
	codeTimeout     = 300 * time.Millisecond // of what ran in user space
)

// traceNames is snapshot.Options.Names. What cannot be found out stays a number.
func (d *daemon) traceNames(m trace.References) (n snapshot.Names) {
	limit := calmly()
	switch {
	case d.cfg.Snapshots.RTPriority > 0:
		d.promptUntil.Store(time.Now().Add(rtNamesTimeout).UnixNano())
	case d.boost.Overloaded():
		d.promptUntil.Store(time.Now().UnixNano()) // helpers are not raised
		limit, m.User, m.Callers = raised(), nil, nil
	default:
		d.promptUntil.Store(math.MaxInt64)
	}
	_ = d.guard.Do(guard.TraceNames, func() error { // logs its errors
		n = lookUpNames(d.hosts, d.symbols, m, limit, d.placeTasks)
		return nil
	})
	return n
}

// namesLimits is how long the lookups of a trace may take: those of tasks, of others, and of
// sockets.
type namesLimits struct {
	tasks, sockets time.Duration
	end            time.Time // of all; zero: each has its own limit only
}

func calmly() namesLimits { return namesLimits{tasks: taskNamesTimeout, sockets: socketsTimeout} }

func raised() namesLimits {
	return namesLimits{tasks: boostNamesTimeout, sockets: boostSocketsTimeout, end: time.Now().Add(boostNamesTimeout)}
}

// of is what is left of one limit.
func (l *namesLimits) of(limit time.Duration) time.Duration {
	if l.end.IsZero() {
		return limit
	}
	return min(limit, max(time.Until(l.end), leastTimeout))
}

// promptCmdlines reads command lines until d.promptUntil and leaves out the rest.
// Helpers run at normal priority, so on an overloaded machine a snapshot that has a
// higher one would wait for them.
func (d *daemon) promptCmdlines(of []process.Started) map[process.Started]string {
	var known map[process.Started]string
	if time.Now().UnixNano() < d.promptUntil.Load() {
		known = d.symbols.Cmdlines(of)
	}
	all := make(map[process.Started]string, len(of))
	for _, p := range of {
		all[p] = known[p]
	}
	return all
}

// inOrder puts those tasks of all first that matter most.
func inOrder(first, all []int) []int {
	left := make(map[int]bool, len(all)) // what is not in out yet
	for _, tid := range all {
		left[tid] = true
	}
	out := make([]int, 0, len(all))
	for _, tid := range slices.Concat(first, all) {
		if left[tid] {
			delete(left, tid)
			out = append(out, tid)
		}
	}
	return out
}

// lookUpNames looks up the tasks, functions, devices and files that a trace refers to,
// as far as they still exist.
func lookUpNames(hosts *process.Table, code interface {
	KernelNames([]uint64) ([]string, error)
	User(pid int, addrs []uint64) symbols.Stack
}, m trace.References, limit namesLimits, place func([]snapshot.NamedTask)) snapshot.Names {
	n := snapshot.Names{Tasks: []snapshot.NamedTask{}, Functions: map[string]string{}, Devices: map[string]string{}}
	tids := inOrder(m.First, m.TIDs)
	known := hosts.Tasks(tids[:min(len(tids), maxNamedTasks)], limit.tasks)
	// Those that slept all the time, and have no event.
	asleep := hosts.Children(known, m.First, limit.of(siblingsTimeout))
	asleep = append(asleep, hosts.Siblings(known, limit.of(siblingsTimeout))...)
	n.Listeners = listeners(hosts, known, m.Listeners, limit.of(limit.sockets))
	for _, l := range n.Listeners {
		asleep = append(asleep, l.PID)
	}
	slices.Sort(asleep)
	asleep = slices.DeleteFunc(slices.Compact(asleep), func(tid int) bool {
		return slices.ContainsFunc(known, func(t process.Task) bool { return t.TID == tid })
	})
	known = append(known, hosts.Tasks(asleep, limit.of(siblingsTimeout))...)
	for _, t := range known {
		n.Tasks = append(n.Tasks, snapshot.NamedTask{
			TID: t.TID, PID: t.PID, PPID: t.PPID, Session: t.Session, Comm: t.Comm, Cmdline: t.Cmdline, Title: t.Title, Exited: t.Exited, Cgroup: t.Cgroup, Container: t.Container,
			Policy: t.Policy, RTPriority: t.RTPriority, Nice: t.Nice, Kernel: t.Kernel, CPUs: t.CPUs, Anonymous: t.Anonymous,
			CPUCgroup: t.CPUCgroup, MemoryCgroup: t.MemoryCgroup, IOCgroup: t.IOCgroup,
		})
	}
	place(n.Tasks)       // asks for their containers, and waits for nothing;
	defer place(n.Tasks) // by then most have answered
	kernelNames(code.KernelNames, &m, n.Functions)
	n.Code = userNames(code.User, userFrames(&m))
	for _, dev := range m.Devices {
		if name := linux.DiskName(dev); name != "" {
			n.Devices[linux.Disk(dev)] = name
		}
	}
	addSettings(&n, m.Scaled)
	addSockets(&n, hosts, m.First, limit.of(limit.sockets))
	end := time.Now().Add(limit.of(fileNamesTimeout))
	for _, pid := range slices.Sorted(maps.Keys(m.Files)) {
		if len(n.Files) > maxNamedFiles || time.Now().After(end) {
			break
		}
		files, err := hosts.Files(pid, m.Files[pid])
		if err != nil {
			continue
		}
		for _, f := range files {
			n.Files = append(n.Files, trace.FileState{PID: pid, FD: f.FD, Flags: f.Flags, Name: f.Name})
		}
	}
	return n
}

// ownProcess is this process as /proc knows it, in whichever namespace that is; 0: not known.
var ownProcess = sync.OnceValue(func() int {
	link, _ := os.Readlink("/proc/self")
	pid, _ := strconv.Atoi(link)
	return pid
})

// maxListeners bounds for how many connects it is looked up who listens.
const maxListeners = 16

// listeners looks up whose accept queues were full.
func listeners(hosts *process.Table, tasks []process.Task, of []trace.Listener, limit time.Duration) (list []snapshot.Listener) {
	var who []process.Listening
	for _, l := range of[:min(len(of), maxListeners)] {
		if i := slices.IndexFunc(tasks, func(t process.Task) bool { return t.TID == l.TID }); i >= 0 {
			who = append(who, process.Listening{PID: tasks[i].PID, Port: uint16(l.Port)})
			list = append(list, snapshot.Listener{TID: l.TID, Port: l.Port})
		}
	}
	owners := hosts.Listeners(who, limit)
	for i := range list {
		list[i].PID = owners[who[i]]
	}
	return slices.DeleteFunc(list, func(l snapshot.Listener) bool { return l.PID == 0 })
}

// addSockets tells which side of its connections each process of the trace is on, those of the
// tasks that matter most before others, but for this one: its hundreds of descriptors would take
// longest.
func addSockets(n *snapshot.Names, hosts *process.Table, first []int, limit time.Duration) {
	var pids, early []int
	for i := range n.Tasks {
		if t := &n.Tasks[i]; !t.Kernel && !t.Exited && t.PID != ownProcess() {
			pids = append(pids, t.PID)
			if slices.Contains(first, t.TID) {
				early = append(early, t.PID)
			}
		}
	}
	slices.Sort(pids)
	for _, s := range hosts.Sockets(inOrder(early, pids), limit) {
		x := snapshot.ProcessSockets{PID: s.PID, Listens: s.Listens, Accepted: s.Accepted, Opened: s.Opened, Partial: s.Partial}
		for _, c := range s.Connections {
			x.Connections = append(x.Connections, snapshot.Connection{Local: c.Local.String(), Remote: c.Remote.String(), Accepted: c.Accepted})
		}
		n.Sockets = append(n.Sockets, x)
	}
}

// kernelNames names functions by their addresses, and frames of stacks with their offsets.
func kernelNames(ask func([]uint64) ([]string, error), m *trace.References, into map[string]string) {
	stacks := m.Frames[:min(len(m.Frames), maxKernelFrames)]
	frames, err := ask(stacks) // taken for return addresses, which all but the innermost are
	for i := range frames {
		if err == nil && !strings.HasPrefix(frames[i], "[unknown]") {
			into[fmt.Sprintf("%#x", stacks[i])] = frames[i]
		}
	}
	inside := make([]uint64, len(m.Functions))
	for i, f := range m.Functions {
		inside[i] = f + 1
	}
	frames, err = ask(inside)
	for i := range frames {
		function, module, ok := strings.Cut(frames[i], "+0x1")
		if err == nil && ok && (module == "" || module[0] == ' ') {
			into[fmt.Sprintf("%#x", m.Functions[i])] = function + module
		}
	}
}

// userFrames are the innermost frames, and as many of the others as there is room for, process by
// process.
func userFrames(m *trace.References) []trace.UserFrame {
	list := slices.Concat(m.User[:min(len(m.User), maxUserFrames)], m.Callers)
	list = list[:min(len(list), maxUserFrames)]
	slices.SortStableFunc(list, func(a, b trace.UserFrame) int { return cmp.Compare(a.PID, b.PID) })
	return list
}

// userNames names what ran in user space, process by process, as far as there is time.
func userNames(ask func(pid int, addrs []uint64) symbols.Stack, list []trace.UserFrame) map[string]string {
	named := map[string]string{}
	end := time.Now().Add(codeTimeout)
	for len(list) > 0 && time.Now().Before(end) {
		pid, addresses := list[0].PID, []uint64(nil)
		for len(list) > 0 && list[0].PID == pid {
			addresses = append(addresses, list[0].Address+1) // as if these were return addresses
			list = list[1:]
		}
		for i, name := range ask(pid, addresses).Frames {
			if i < len(addresses) && !strings.HasPrefix(name, "[unknown] 0x") { // a file without symbols is something, too
				named[snapshot.CodeKey(pid, addresses[i]-1)] = name
			}
		}
	}
	return named
}
