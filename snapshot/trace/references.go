package trace

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// References is what records name by number.
type References struct {
	TIDs      []int         // tasks, without idle ones
	First     []int         // those of them that matter most, where time is short; set by the caller
	Files     map[int][]int // file descriptors in system calls, by process
	Functions []uint64      // of timers and of work
	Frames    []uint64      // of stacks in the kernel
	User      []UserFrame   // and in user space, the innermost ones
	Callers   []UserFrame   // and further out, by frame pointers: these may be no code at all
	Devices   []uint32      // of block requests, major << 20 | minor
	Scaled    []int         // CPUs whose frequency has changed
	Listeners []Listener    // whose accept queue was full
}

// Listener is a socket of TCP that listens on a port, and to which a task wanted to connect.
type Listener struct{ TID, Port int }

// UserFrame is where a process ran in user space.
type UserFrame struct {
	PID     int
	Address uint64
}

// FindReferences lists what the records name, each once and in order. name gives the
// name of a system call; it may be nil, then no files are found.
func FindReferences(cpus []CPU, name func(nr int) string) References {
	tids, functions, devices, scaled := map[int]bool{}, map[uint64]bool{}, map[uint32]bool{}, map[int]bool{}
	listeners := map[Listener]bool{}
	stacks := stackReferences{map[uint64]bool{}, map[UserFrame]bool{}, map[UserFrame]bool{}}
	files := fileReferences{names: syscallNames{ask: name}, found: map[file]bool{}}
	for i := range cpus {
		for j := range cpus[i].Records {
			r := &cpus[i].Records[j] //nolint:gosec // range of the same slice
			tids[r.TID()] = true
			switch r.Type() {
			case SchedSwitch:
				tids[int(r.s32(abi.OffSwitchNextTid))] = true
			case SchedWaking, SchedWakeupNew:
				tids[int(r.s32(abi.OffWakeTid))] = true
			case LockBegin:
				tids[int(r.s32(abi.OffLockOwnerTid))] = true
			case HrtimerEntry:
				functions[r.u64(abi.OffHrtimerFunction)] = true
			case TimerEntry:
				functions[r.u64(abi.OffTimerFunction)] = true
				if x := r.tcpTimer(); x.Full() && x.Waiter != 0 {
					listeners[Listener{x.Waiter, x.Port}] = true
				}
			case WorkStart, WorkQueued:
				functions[r.u64(abi.OffWorkFunction)] = true
			case SyscallEntry, SyscallExit:
				files.add(r)
			case WaitStack, Sample, RunStack:
				stacks.add(r)
			case BlockInsert, BlockIssue, BlockComplete:
				devices[r.u32(abi.OffBlockDev)] = true
			case CPUFrequency:
				scaled[int(r.s32(abi.OffPowerCpu))] = true
			}
		}
	}
	delete(tids, 0)
	delete(functions, 0)
	return References{
		TIDs: slices.Sorted(maps.Keys(tids)), Files: files.list(),
		Frames: slices.Sorted(maps.Keys(stacks.kernel)), User: slices.SortedFunc(maps.Keys(stacks.user), compareFrames),
		Callers:   slices.SortedFunc(maps.Keys(stacks.callers), compareFrames),
		Functions: slices.Sorted(maps.Keys(functions)), Devices: slices.Sorted(maps.Keys(devices)),
		Scaled:    slices.Sorted(maps.Keys(scaled)),
		Listeners: slices.SortedFunc(maps.Keys(listeners), compareListeners),
	}
}

// Without returns the references that are not in other.
func (r *References) Without(other *References) References {
	out := References{
		First: r.First,
		TIDs:  without(r.TIDs, other.TIDs), Functions: without(r.Functions, other.Functions), Frames: without(r.Frames, other.Frames),
		User: without(r.User, other.User), Callers: without(r.Callers, other.Callers), Devices: without(r.Devices, other.Devices),
		Scaled: without(r.Scaled, other.Scaled), Listeners: without(r.Listeners, other.Listeners),
	}
	for pid, fds := range r.Files {
		if rest := without(fds, other.Files[pid]); len(rest) > 0 {
			if out.Files == nil {
				out.Files = map[int][]int{}
			}
			out.Files[pid] = rest
		}
	}
	return out
}

// Empty reports whether there are none.
func (r *References) Empty() bool {
	return len(r.TIDs)+len(r.Files)+len(r.Functions)+len(r.Frames)+len(r.User)+len(r.Devices) == 0
}

// without returns the elements of a that are not in b.
func without[T comparable](a, b []T) (out []T) {
	in := make(map[T]bool, len(b))
	for _, v := range b {
		in[v] = true
	}
	for _, v := range a {
		if !in[v] {
			out = append(out, v)
		}
	}
	return out
}

// stackReferences collects frames of stacks. In user space, the innermost alone is sure.
type stackReferences struct {
	kernel  map[uint64]bool
	user    map[UserFrame]bool
	callers map[UserFrame]bool
}

func (s *stackReferences) add(r *Record) {
	if r.u16(abi.OffStackKind) == abi.StackUser {
		pid := int(r.s32(abi.OffStackPid))
		s.user[UserFrame{pid, r.frame(0)}] = true
		for i := 1; i < abi.StackFrames && r.frame(i) != 0; i++ {
			s.callers[UserFrame{pid, r.frame(i)}] = true
		}
		return
	}
	for i := range abi.StackFrames {
		if address := r.frame(i); address != 0 {
			s.kernel[address] = true
		}
	}
}

func compareFrames(a, b UserFrame) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Address, b.Address))
}

func compareListeners(a, b Listener) int {
	return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(a.Port, b.Port))
}

// fileReferences collects file descriptors from the system calls that name
// them, and from those that give them out.
type fileReferences struct {
	names syscallNames
	found map[file]bool
}

var fileArguments = []string{"fd", "fildes", "oldfd", "newfd", "fd_in", "fd_out", "in_fd", "out_fd", "fdin", "fdout", "epfd"}

func (m *fileReferences) add(r *Record) {
	call := m.names.get(r.u32(abi.OffSyscallNr))
	if call == nil {
		return
	}
	pid := int(r.s32(abi.OffSyscallPid))
	if r.Type() == SyscallExit {
		if fd := int64(r.u64(abi.OffSyscallRet)); fd >= 0 && fd <= math.MaxInt32 &&
			slices.Contains(openers, call.name) {
			m.found[file{pid, int(fd)}] = true
		}
		return
	}
	for i := range call.entry {
		f := &call.entry[i]
		if fd := int(r.s32(f.off)); f.off >= abi.OffSyscallArgs && f.kind != kAddress && fd >= 0 &&
			slices.Contains(fileArguments, f.name) {
			m.found[file{pid, fd}] = true
		}
	}
}

func (m *fileReferences) list() map[int][]int {
	if len(m.found) == 0 {
		return nil
	}
	out := make(map[int][]int)
	for f := range m.found {
		out[f.pid] = append(out[f.pid], f.fd)
	}
	for _, fds := range out {
		slices.Sort(fds)
	}
	return out
}
