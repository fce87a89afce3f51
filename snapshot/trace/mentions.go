package trace

import (
	"maps"
	"math"
	"slices"

	"github.com/tailcam/tailcam/bpf/abi"
)

// Mentioned is what records name by number.
type Mentioned struct {
	TIDs      []int         // tasks, without idle ones
	Files     map[int][]int // file descriptors in system calls, by process
	Functions []uint64      // of timers and of work
	Devices   []uint32      // of block requests, major << 20 | minor
}

// Mentions lists what the records name, each once and in order. name gives the
// name of a system call; it may be nil, then no files are found.
func Mentions(cpus []CPU, name func(nr int) string) Mentioned {
	tids, functions, devices := map[int]bool{}, map[uint64]bool{}, map[uint32]bool{}
	files := mentionedFiles{names: syscallNames{ask: name}, found: map[file]bool{}}
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
			case WorkStart, WorkQueued:
				functions[r.u64(abi.OffWorkFunction)] = true
			case SyscallEntry, SyscallExit:
				files.see(r)
			case BlockInsert, BlockIssue, BlockComplete:
				devices[r.u32(abi.OffBlockDev)] = true
			}
		}
	}
	delete(tids, 0)
	delete(functions, 0)
	return Mentioned{
		TIDs: slices.Sorted(maps.Keys(tids)), Files: files.list(),
		Functions: slices.Sorted(maps.Keys(functions)), Devices: slices.Sorted(maps.Keys(devices)),
	}
}

// mentionedFiles collects file descriptors from the system calls that name
// them, and from those that give them out.
type mentionedFiles struct {
	names syscallNames
	found map[file]bool
}

var fileArguments = []string{"fd", "fildes", "oldfd", "newfd", "fd_in", "fd_out", "in_fd", "out_fd", "fdin", "fdout", "epfd"}

func (m *mentionedFiles) see(r *Record) {
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

func (m *mentionedFiles) list() map[int][]int {
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
