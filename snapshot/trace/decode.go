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
			PrevState: state & prevState, Preempted: state&prevPreempted != 0,
			Call: switchCall(state), IOWait: state&prevIOWait != 0,
			Frozen: state&prevFrozen != 0, Throttled: state&prevThrottled != 0,
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
		return IRQ{IRQ: int(r.s32(offIRQ)), Name: r.text(offIRQName, irqNameLen)}
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
		c := Syscall{NR: r.u32(offSyscallNR), PID: int(r.s32(offSyscallPID))}
		for i := range c.Args {
			c.Args[i] = r.u64(offSyscallArg + 8*i)
		}
		return c
	case SyscallExit:
		return Syscall{NR: r.u32(offSyscallNR), PID: int(r.s32(offSyscallPID)), Ret: int64(r.u64(offSyscallRet))}
	}
	return r.rareBody(t)
}

// switchCall takes the system call out of prev_state.
func switchCall(state uint32) int {
	switch c := int(state >> prevCallShift & prevCallMask); c {
	case 0:
		return CallNone
	case prevCallMask:
		return CallException
	default:
		return c - 1
	}
}

// rareBody decodes the events that are not in every trace.
func (r *Record) rareBody(t Type) any {
	switch t {
	case WorkQueued:
		return WorkQueue{
			Work: r.u64(offQueueWork), Function: r.u64(offQueueFunction),
			Name: r.text(offQueueName, queueNameLen), ReqCPU: int(r.s32(offQueueCPU)),
		}
	case TimerEntry:
		return Timer{Timer: r.u64(offTimer), Function: r.u64(offTimerFunction), Now: r.u64(offTimerNow)}
	case TimerExit:
		return Timer{Timer: r.u64(offTimer)}
	case FaultUser, FaultKernel:
		return Fault{Address: r.u64(offFaultAddress), IP: r.u64(offFaultIP), ErrorCode: r.u64(offFaultCode)}
	case ReclaimBegin:
		return Reclaim{Memcg: r.u32(offReclaimKind) != 0, Order: int(r.s32(offReclaimOrder))}
	case ReclaimEnd:
		return Reclaim{Memcg: r.u32(offReclaimKind) != 0, Reclaimed: r.u64(offReclaimed)}
	case CompactionBegin:
		return Compaction{Sync: r.u32(offReclaimSync) != 0}
	case CompactionEnd:
		return Compaction{Status: int(r.s32(offReclaimStatus))}
	case LockBegin:
		return Lock{Lock: r.u64(offLock), Flags: r.u32(offLockFlags), OwnerTID: int(r.s32(offLockOwner))}
	case LockEnd:
		return Lock{Lock: r.u64(offLock), Ret: int(r.s32(offLockRet))}
	case CPUIdle:
		return Idle{State: int(r.s32(offPowerState)), CPU: int(r.s32(offPowerCPU))}
	case CPUFrequency:
		return Frequency{KHz: r.u32(offPowerState), CPU: int(r.s32(offPowerCPU))}
	case NetQueue, NetReceive:
		return Net{SKB: r.u64(offNetSKB), Bytes: r.u32(offNetBytes), Dev: r.text(offNetDev, netDevLen)}
	case NapiPoll:
		return Napi{Work: int(r.s32(offNetWork)), Budget: int(r.s32(offNetBudget)), Dev: r.text(offNetDev, netDevLen)}
	case CgroupThrottle, CgroupUnthrottle:
		return Throttle{Cgroup: r.u64(offThrottleCgroup), CPU: int(r.s32(offThrottleCPU))}
	case KVMEntry:
		return KVM{VCPU: r.u32(offKVMCPU)}
	case KVMExit:
		return KVM{VCPU: r.u32(offKVMCPU), Reason: r.u32(offKVMReason), IP: r.u64(offKVMIP)}
	case Steal:
		return Stolen{NS: r.u64(offStolen), Since: r.u64(offStolenSince)}
	}
	return nil // not reached: known() bounds the type
}
