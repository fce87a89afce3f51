package trace

// Offsets are the layout that abi_test.go compares with bpf/abi.h, by the C
// expression that gives the same number.
var Offsets = map[string]int{
	"offsetof(struct record, type)":    offType,
	"offsetof(struct record, cpu)":     offCPU,
	"offsetof(struct record, tid)":     offTID,
	"offsetof(struct record, time_ns)": offTime,
	"offsetof(struct record, raw)":     offBody,

	"offsetof(struct record, sw.prev_comm)":  offSwitchPrevComm,
	"offsetof(struct record, sw.next_comm)":  offSwitchNextComm,
	"offsetof(struct record, sw.next_tid)":   offSwitchNextTID,
	"offsetof(struct record, sw.next_pid)":   offSwitchNextPID,
	"offsetof(struct record, sw.prev_prio)":  offSwitchPrevPrio,
	"offsetof(struct record, sw.next_prio)":  offSwitchNextPrio,
	"offsetof(struct record, sw.prev_state)": offSwitchPrevState,

	"offsetof(struct record, wake.comm)":       offWakeComm,
	"offsetof(struct record, wake.tid)":        offWakeTID,
	"offsetof(struct record, wake.pid)":        offWakePID,
	"offsetof(struct record, wake.prio)":       offWakePrio,
	"offsetof(struct record, wake.target_cpu)": offWakeTargetCPU,

	"offsetof(struct record, migrate.comm)":     offMigrateComm,
	"offsetof(struct record, migrate.tid)":      offMigrateTID,
	"offsetof(struct record, migrate.prio)":     offMigratePrio,
	"offsetof(struct record, migrate.orig_cpu)": offMigrateOrigCPU,
	"offsetof(struct record, migrate.dest_cpu)": offMigrateDestCPU,

	"offsetof(struct record, irq.irq)":         offIRQ,
	"offsetof(struct record, irq.ret)":         offIRQRet,
	"offsetof(struct record, irq.name)":        offIRQName,
	"sizeof(((struct record *)0)->irq.name)":   irqNameLen,
	"offsetof(struct record, softirq.vec)":     offSoftirqVec,
	"offsetof(struct record, hrtimer.hrtimer)": offHrtimer,

	"offsetof(struct record, hrtimer.function)": offHrtimerFunction,
	"offsetof(struct record, hrtimer.now)":      offHrtimerNow,

	"offsetof(struct record, block.rq)":        offBlockRQ,
	"offsetof(struct record, block.sector)":    offBlockSector,
	"offsetof(struct record, block.dev)":       offBlockDev,
	"offsetof(struct record, block.bytes)":     offBlockBytes,
	"offsetof(struct record, block.cmd_flags)": offBlockFlags,
	"offsetof(struct record, block.error)":     offBlockError,
	"offsetof(struct record, block.comm)":      offBlockComm,

	"offsetof(struct record, work.work)":     offWork,
	"offsetof(struct record, work.function)": offWorkFunction,

	"offsetof(struct record, process.comm)":       offProcessComm,
	"offsetof(struct record, process.child_comm)": offProcessChildComm,
	"offsetof(struct record, process.pid)":        offProcessPID,
	"offsetof(struct record, process.child_tid)":  offProcessChildTID,
	"offsetof(struct record, process.child_pid)":  offProcessChildPID,
	"offsetof(struct record, process.prio)":       offProcessPrio,

	"offsetof(struct record, syscall.nr)":  offSyscallNR,
	"offsetof(struct record, syscall.pid)": offSyscallPID,
	"offsetof(struct record, syscall.ret)": offSyscallRet,

	"sizeof(struct record)": RecordSize,
	"TASK_COMM_LEN":         len(Comm{}),
	"PREV_PREEMPTED":        prevPreempted,
}
