package trace

import (
	"fmt"

	"github.com/tailcam/tailcam/bpf/abi"
)

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
		state := r.u32(abi.OffSwitchPrevState)
		call, futex := switchCall(state)
		return Switch{
			PrevComm: r.comm(abi.OffSwitchPrevComm), NextComm: r.comm(abi.OffSwitchNextComm),
			NextTID: int(r.s32(abi.OffSwitchNextTid)), NextPID: int(r.s32(abi.OffSwitchNextPid)),
			PrevPrio: int(r.s16(abi.OffSwitchPrevPrio)), NextPrio: int(r.s16(abi.OffSwitchNextPrio)),
			PrevState: state & abi.PrevState, Preempted: state&abi.PrevPreempted != 0,
			Call: call, Futex: futex, IOWait: state&abi.PrevIowait != 0,
			Frozen: state&abi.PrevFrozen != 0, Throttled: state&abi.PrevThrottled != 0,
		}
	case SchedWaking, SchedWakeupNew:
		return Wake{
			Comm: r.comm(abi.OffWakeComm),
			TID:  int(r.s32(abi.OffWakeTid)), PID: int(r.s32(abi.OffWakePid)),
			Prio: int(r.s32(abi.OffWakePrio)), TargetCPU: int(r.s32(abi.OffWakeTargetCpu)),
			Context: r.u32(abi.OffWakeContext),
		}
	case SchedMigrate:
		return Migrate{
			Comm: r.comm(abi.OffMigrateComm), TID: int(r.s32(abi.OffMigrateTid)), Prio: int(r.s32(abi.OffMigratePrio)),
			OrigCPU: int(r.s32(abi.OffMigrateOrigCpu)), DestCPU: int(r.s32(abi.OffMigrateDestCpu)),
		}
	case IRQEntry:
		return IRQ{IRQ: int(r.s32(abi.OffIrqIrq)), Name: r.text(abi.OffIrqName, abi.WorkNameLen)}
	case IRQExit:
		return IRQ{IRQ: int(r.s32(abi.OffIrqIrq)), Ret: int(r.s32(abi.OffIrqRet))}
	case SoftirqEntry, SoftirqExit:
		s := Softirq{Vec: r.u32(abi.OffSoftirqVec)}
		if irq := r.s32(abi.OffSoftirqIrq); t == SoftirqEntry && irq >= 0 {
			s.AfterIRQ, s.IRQ = true, int(irq)
		}
		return s
	case HrtimerEntry:
		return Hrtimer{
			Hrtimer: r.u64(abi.OffHrtimerHrtimer), Function: r.u64(abi.OffHrtimerFunction),
			Now: int64(r.u64(abi.OffHrtimerNow)),
		}
	case HrtimerExit:
		return Hrtimer{Hrtimer: r.u64(abi.OffHrtimerHrtimer)}
	case BlockInsert, BlockIssue, BlockComplete:
		b := Block{
			RQ: r.u64(abi.OffBlockRq), Sector: r.u64(abi.OffBlockSector), Dev: r.u32(abi.OffBlockDev),
			Bytes: r.u32(abi.OffBlockBytes), Flags: r.u32(abi.OffBlockCmdFlags), Comm: r.comm(abi.OffBlockComm),
		}
		if t == BlockComplete {
			b.Status = int(r.s32(abi.OffBlockError))
		}
		return b
	case WorkStart, WorkEnd:
		return Work{Work: r.u64(abi.OffWorkWork), Function: r.u64(abi.OffWorkFunction)}
	case ProcessFork:
		return Fork{
			ParentComm: r.comm(abi.OffProcessComm), ChildComm: r.comm(abi.OffProcessChildComm),
			ParentPID: int(r.s32(abi.OffProcessPid)), ChildTID: int(r.s32(abi.OffProcessChildTid)),
			ChildPID: int(r.s32(abi.OffProcessChildPid)), Prio: int(r.s32(abi.OffProcessPrio)),
		}
	case ProcessExec:
		return Exec{
			Comm: r.comm(abi.OffProcessComm), PID: int(r.s32(abi.OffProcessPid)),
			OldTID: int(r.s32(abi.OffProcessChildTid)), Prio: int(r.s32(abi.OffProcessPrio)),
		}
	case ProcessExit:
		return Exit{
			Comm: r.comm(abi.OffProcessComm), PID: int(r.s32(abi.OffProcessPid)),
			Prio: int(r.s32(abi.OffProcessPrio)),
		}
	case SyscallEntry:
		c := Syscall{NR: r.u32(abi.OffSyscallNr), PID: int(r.s32(abi.OffSyscallPid))}
		for i := range c.Args {
			c.Args[i] = r.u64(abi.OffSyscallArgs + 8*i)
		}
		return c
	case SyscallExit:
		return Syscall{
			NR: r.u32(abi.OffSyscallNr), PID: int(r.s32(abi.OffSyscallPid)),
			Ret: int64(r.u64(abi.OffSyscallRet)),
		}
	}
	return r.rareBody(t)
}

// switchCall takes the system call out of prev_state.
func switchCall(state uint32) (int, Futex) {
	switch c := int(state >> abi.PrevCallShift & abi.PrevCallMask); {
	case c == 0:
		return CallNone, 0
	case c == abi.PrevException:
		return CallException, 0
	case c >= abi.PrevFutex && c < abi.PrevFutex+abi.FutexWaits:
		return CallFutex, Futex(c - abi.PrevFutex | abi.FutexWaits)
	case c >= abi.PrevFutexPlace && c < abi.PrevFutexPlace+abi.FutexPlaces:
		c -= abi.PrevFutexPlace
		f := MakeFutex(FutexWait, uint32(c/abi.FutexPlaceValue), false, c&abi.FutexPlaceTimed != 0)
		return CallFutex, f.At(c % abi.FutexPlaceTimed)
	default:
		return c - 1, 0
	}
}

// rareBody decodes the events that are not in every trace.
func (r *Record) rareBody(t Type) any {
	switch t {
	case WorkQueued:
		return WorkQueue{
			Work: r.u64(abi.OffWorkQueueWork), Function: r.u64(abi.OffWorkQueueFunction),
			Name: r.text(abi.OffWorkQueueName, abi.RecordNameLen), ReqCPU: int(r.s32(abi.OffWorkQueueReqCpu)),
			Context: r.u32(abi.OffWorkQueueContext),
		}
	case TimerEntry:
		return Timer{
			Timer: r.u64(abi.OffTimerTimer), Function: r.u64(abi.OffTimerFunction),
			Now: r.u64(abi.OffTimerNow), TCP: r.tcpTimer(),
		}
	case TimerExit:
		return Timer{Timer: r.u64(abi.OffTimerTimer)}
	case FaultUser, FaultKernel:
		return Fault{
			Address: r.u64(abi.OffFaultAddress), IP: r.u64(abi.OffFaultIp),
			ErrorCode: r.u64(abi.OffFaultErrorCode),
		}
	case ReclaimBegin:
		return Reclaim{Memcg: r.u32(abi.OffReclaimKind) != 0, Order: int(r.s32(abi.OffReclaimOrder))}
	case ReclaimEnd:
		return Reclaim{Memcg: r.u32(abi.OffReclaimKind) != 0, Reclaimed: r.u64(abi.OffReclaimReclaimed)}
	case CompactionBegin:
		return Compaction{Sync: r.u32(abi.OffReclaimSync) != 0}
	case CompactionEnd:
		return Compaction{Status: int(r.s32(abi.OffReclaimStatus))}
	case LockBegin:
		return Lock{
			Lock: r.u64(abi.OffLockLock), Flags: r.u32(abi.OffLockFlags),
			OwnerTID: int(r.s32(abi.OffLockOwnerTid)),
		}
	case LockEnd:
		return Lock{Lock: r.u64(abi.OffLockLock), Ret: int(r.s32(abi.OffLockRet))}
	case FileLockRequest:
		return FileLock{
			Inode: r.u64(abi.OffFileLockInode), Dev: r.u32(abi.OffFileLockDevice), Ret: int(r.s32(abi.OffFileLockRet)),
			Start: r.u64(abi.OffFileLockStart), End: r.u64(abi.OffFileLockEnd),
			Flags: r.u32(abi.OffFileLockFlags), Type: int(r.s32(abi.OffFileLockType)),
			PID: int(r.s32(abi.OffFileLockPid)), HolderPID: int(r.s32(abi.OffFileLockHolderPid)),
		}
	case CPUIdle:
		return Idle{State: int(r.s32(abi.OffPowerState)), CPU: int(r.s32(abi.OffPowerCpu))}
	case CPUFrequency:
		return Frequency{KHz: r.u32(abi.OffPowerState), CPU: int(r.s32(abi.OffPowerCpu))}
	case NetQueue, NetReceive:
		n := Net{SKB: r.u64(abi.OffNetSkb), Bytes: r.u32(abi.OffNetBytes), Dev: r.text(abi.OffNetDev, abi.RecordNameLen)}
		if t == NetQueue { // packets that are received have none
			n.Context = r.u32(abi.OffNetContext)
		}
		return n
	case NapiPoll:
		return Napi{
			Work: int(r.s32(abi.OffNetWork)), Budget: int(r.s32(abi.OffNetBudget)),
			Dev: r.text(abi.OffNetDev, abi.RecordNameLen),
		}
	case CgroupThrottle, CgroupUnthrottle:
		return Throttle{Cgroup: r.u64(abi.OffThrottleCgroup), CPU: int(r.s32(abi.OffThrottleCpu))}
	case KVMEntry:
		return KVM{VCPU: r.u32(abi.OffKvmVcpu)}
	case KVMExit:
		return KVM{VCPU: r.u32(abi.OffKvmVcpu), Reason: r.u32(abi.OffKvmReason), IP: r.u64(abi.OffKvmIp)}
	case Steal:
		return Stolen{NS: r.u64(abi.OffStealStolenNs), Since: r.u64(abi.OffStealSinceNs)}
	case Interrupts:
		return ShortRuns{
			Vec: int(r.s32(abi.OffInterruptsVec)), NS: uint64(r.u32(abi.OffInterruptsTotalNs)),
			Count: r.u32(abi.OffInterruptsCount), Since: r.u64(abi.OffInterruptsSinceNs),
			Sampled: r.u32(abi.OffInterruptsSampled) != 0, Same: r.u32(abi.OffInterruptsSampled) == abi.InterruptsSame,
		}
	case WaitStack, Sample, RunStack:
		s := Stack{PID: int(r.s32(abi.OffStackPid)), User: r.u16(abi.OffStackKind) == abi.StackUser, Outer: r.u16(abi.OffStackKind) == abi.StackOuter}
		for i := range s.Frames {
			s.Frames[i] = r.frame(i)
		}
		return s
	}
	return nil // not reached: known() bounds the type
}
