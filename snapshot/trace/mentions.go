package trace

import (
	"maps"
	"slices"
)

// Mentioned is what records name by number.
type Mentioned struct {
	TIDs      []int    // tasks, without idle ones
	Callers   []int    // processes whose system calls were recorded
	Functions []uint64 // of timers and of work
	Devices   []uint32 // of block requests, major << 20 | minor
}

// Mentions lists what the records name, each once and in order.
func Mentions(cpus []CPU) Mentioned {
	tids, callers, functions, devices := map[int]bool{}, map[int]bool{}, map[uint64]bool{}, map[uint32]bool{}
	for i := range cpus {
		for j := range cpus[i].Records {
			r := &cpus[i].Records[j]
			tids[r.TID()] = true
			switch r.Type() {
			case SchedSwitch:
				tids[int(r.s32(offSwitchNextTID))] = true
			case SchedWaking, SchedWakeupNew:
				tids[int(r.s32(offWakeTID))] = true
			case LockBegin:
				tids[int(r.s32(offLockOwner))] = true
			case HrtimerEntry:
				functions[r.u64(offHrtimerFunction)] = true
			case TimerEntry:
				functions[r.u64(offTimerFunction)] = true
			case WorkStart, WorkQueued:
				functions[r.u64(offWorkFunction)] = true
			case SyscallEntry, SyscallExit:
				callers[int(r.s32(offSyscallPID))] = true
			case BlockInsert, BlockIssue, BlockComplete:
				devices[r.u32(offBlockDev)] = true
			}
		}
	}
	delete(tids, 0)
	delete(callers, 0)
	delete(functions, 0)
	return Mentioned{
		TIDs: slices.Sorted(maps.Keys(tids)), Callers: slices.Sorted(maps.Keys(callers)),
		Functions: slices.Sorted(maps.Keys(functions)), Devices: slices.Sorted(maps.Keys(devices)),
	}
}
