package trace

import "fmt"

// Decode returns the record as an event. It takes any bytes; an error wraps
// ErrUnknown. Fields that the kind of event does not fill are ignored.
func (r *Record) Decode() (Event, error) {
	ev := Event{Time: r.Time(), CPU: r.CPU(), Type: r.Type(), TID: r.TID()}
	if !r.known() {
		return Event{}, fmt.Errorf("%w: type %d, time %d", ErrUnknown, uint16(ev.Type), ev.Time)
	}
	ev.Body = r.body(ev.Type)
	return ev, nil
}

func (r *Record) body(t Type) any {
	switch t {
	case SchedSwitch:
		state := r.u32(offSwitchPrevState)
		return Switch{
			PrevComm: r.comm(offSwitchPrevComm), NextComm: r.comm(offSwitchNextComm),
			NextTID: int(r.s32(offSwitchNextTID)), NextPID: int(r.s32(offSwitchNextPID)),
			PrevPrio: int(r.s16(offSwitchPrevPrio)), NextPrio: int(r.s16(offSwitchNextPrio)),
			PrevState: state &^ prevPreempted, Preempted: state&prevPreempted != 0,
		}
	case SchedWaking, SchedWakeupNew:
		return Wake{
			Comm: r.comm(offWakeComm),
			TID:  int(r.s32(offWakeTID)), PID: int(r.s32(offWakePID)),
			Prio: int(r.s32(offWakePrio)), TargetCPU: int(r.s32(offWakeTargetCPU)),
		}
	case SchedMigrate:
		return Migrate{
			Comm: r.comm(offMigrateComm), TID: int(r.s32(offMigrateTID)), Prio: int(r.s32(offMigratePrio)),
			OrigCPU: int(r.s32(offMigrateOrigCPU)), DestCPU: int(r.s32(offMigrateDestCPU)),
		}
	case IRQEntry:
		return IRQ{IRQ: int(r.s32(offIRQ)), Name: string(cutNUL(r[offIRQName : offIRQName+irqNameLen]))}
	case IRQExit:
		return IRQ{IRQ: int(r.s32(offIRQ)), Ret: int(r.s32(offIRQRet))}
	case SoftirqEntry, SoftirqExit:
		return Softirq{Vec: r.u32(offSoftirqVec)}
	case HrtimerEntry:
		return Hrtimer{Hrtimer: r.u64(offHrtimer), Function: r.u64(offHrtimerFunction), Now: int64(r.u64(offHrtimerNow))}
	case HrtimerExit:
		return Hrtimer{Hrtimer: r.u64(offHrtimer)}
	case BlockInsert, BlockIssue, BlockComplete:
		b := Block{
			RQ: r.u64(offBlockRQ), Sector: r.u64(offBlockSector), Dev: r.u32(offBlockDev),
			Bytes: r.u32(offBlockBytes), Flags: r.u32(offBlockFlags), Comm: r.comm(offBlockComm),
		}
		if t == BlockComplete {
			b.Status = int(r.s32(offBlockError))
		}
		return b
	case WorkStart, WorkEnd:
		return Work{Work: r.u64(offWork), Function: r.u64(offWorkFunction)}
	case ProcessFork:
		return Fork{
			ParentComm: r.comm(offProcessComm), ChildComm: r.comm(offProcessChildComm),
			ParentPID: int(r.s32(offProcessPID)), ChildTID: int(r.s32(offProcessChildTID)),
			ChildPID: int(r.s32(offProcessChildPID)), Prio: int(r.s32(offProcessPrio)),
		}
	case ProcessExec:
		return Exec{
			Comm: r.comm(offProcessComm), PID: int(r.s32(offProcessPID)),
			OldTID: int(r.s32(offProcessChildTID)), Prio: int(r.s32(offProcessPrio)),
		}
	case ProcessExit:
		return Exit{Comm: r.comm(offProcessComm), PID: int(r.s32(offProcessPID)), Prio: int(r.s32(offProcessPrio))}
	case SyscallEntry:
		return Syscall{NR: r.u32(offSyscallNR), PID: int(r.s32(offSyscallPID))}
	case SyscallExit:
		return Syscall{NR: r.u32(offSyscallNR), PID: int(r.s32(offSyscallPID)), Ret: int64(r.u64(offSyscallRet))}
	}
	return nil // not reached: known() bounds the type
}
