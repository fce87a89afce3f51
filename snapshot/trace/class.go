package trace

import "github.com/tailcam/tailcam/bpf/abi"

// The table below is the only place that knows how an event lies in CTF: the
// metadata, the encoder and the decoder all follow it. Names, order and
// meaning of the fields are those of lttng-modules 2.13 for kernel 6.1 and
// later, so that readers of LTTng kernel traces understand them; fields of
// ours come after LTTng's. Differences:
//
//   - sched_process_exec.filename holds the new comm: the record has no path.
//   - sched_process_fork has no namespace fields (vtids, *_ns_inum).
//   - syscall_* events have the first five arguments, at the entry; strings
//     are not copied: their address stands there, as text.
//
// The current task's id is the event context "tid", as `lttng add-context -k
// -t tid` would have it.

// layoutVersion is written to the trace's environment. Readers follow what the
// metadata declares, so new events and new fields need no new number; a new
// meaning of an old name does. Layout 1 had its files in the trace's directory
// itself, no state dump, and numbers only of system calls.
const layoutVersion = 2

// layoutCompressed is written instead if the streams are compressed: releases before it
// would find no streams, and no fault.
const layoutCompressed = 3

type kind uint8

// How a field lies in CTF, and where its value comes from: off is a place in
// the record, or in values for events that come from no record. Little endian,
// byte aligned.
const (
	kS32        kind = iota // 4 signed bytes of the record
	kU32                    // 4 unsigned bytes
	kX32                    // the same, shown in base 16
	kS64                    // 8 signed bytes
	kU64                    // 8 unsigned bytes
	kX64                    // the same, shown in base 16
	kComm                   // 16 characters
	kIRQName                // a string out of abi.WorkNameLen bytes
	kRecordName             // a string out of abi.RecordNameLen bytes
	kPrio16                 // signed 32 bits: 2 bytes of the record, minus maxRTPrio
	kPrio32                 // signed 32 bits: 4 bytes of the record, minus maxRTPrio
	kState                  // signed 64 bits, derived: lttngState
	kRWBS                   // unsigned 32 bits, derived: lttngRWBS
	kSectors                // unsigned 32 bits, derived: bytes / 512
	kErrno                  // signed 32 bits, derived: statusErrno
	kTID                    // signed 32 bits, derived: the record's tid
	kCommText               // a string out of a comm
	kText                   // a string, in values only
	kAddress                // a string: 8 bytes of the record in base 16
	kArgs                   // the arguments of a system call, each as kX64
	kU16                    // unsigned 32 bits: 2 bytes of the record
	kFrames                 // the addresses of a stack, each as kX64
	kSkip                   // read only: off bytes that mean nothing to us
	kSkipText               // read only: a string that means nothing to us
)

type field struct {
	name string
	kind kind
	off  int
}

type class struct {
	name   string
	fields []field
}

var (
	wakeFields = []field{
		{"comm", kComm, abi.OffWakeComm}, {"tid", kS32, abi.OffWakeTid}, {"prio", kPrio32, abi.OffWakePrio},
		{"target_cpu", kS32, abi.OffWakeTargetCpu}, {"pid", kS32, abi.OffWakePid}, {"context", kX32, abi.OffWakeContext},
	}
	markerFields = []field{
		{"rule", kText, valRule}, {"track", kText, valTrack}, {"delay_ns", kS64, valDelay},
		{"tid", kS32, valTID}, {"pid", kS32, valPID}, {"comm", kComm, valName}, {"outlier", kU64, valOutlier},
	}
	workFields  = []field{{"work", kX64, abi.OffWorkWork}, {"function", kX64, abi.OffWorkFunction}}
	faultFields = []field{
		{"address", kX64, abi.OffFaultAddress}, {"ip", kX64, abi.OffFaultIp},
		{"error_code", kX64, abi.OffFaultErrorCode},
	}
	netFields = []field{
		{"skbaddr", kX64, abi.OffNetSkb}, {"len", kU32, abi.OffNetBytes}, {"name", kRecordName, abi.OffNetDev},
	}
	powerFields = []field{{"state", kU32, abi.OffPowerState}, {"cpu_id", kU32, abi.OffPowerCpu}}
	quotaFields = []field{{"cgroup", kU64, abi.OffThrottleCgroup}, {"cpu", kU32, abi.OffThrottleCpu}}
	stackFields = []field{{"pid", kS32, abi.OffStackPid}, {"kind", kU16, abi.OffStackKind}, {"frames", kFrames, abi.OffStackLow}}
	blockFields = []field{
		{"dev", kU32, abi.OffBlockDev}, {"sector", kU64, abi.OffBlockSector},
		{"nr_sector", kSectors, abi.OffBlockBytes},
		{"bytes", kU32, abi.OffBlockBytes}, {"tid", kTID, abi.OffTid}, {"rwbs", kRWBS, abi.OffBlockCmdFlags},
		{"comm", kComm, abi.OffBlockComm}, {"rq", kX64, abi.OffBlockRq}, {"cmd_flags", kX32, abi.OffBlockCmdFlags},
	}
)

// classes is indexed by Type. Names of the system calls' classes are those
// for calls without a name; the others have the same fields.
var classes = [...]class{
	SchedSwitch: {"sched_switch", []field{
		{"prev_comm", kComm, abi.OffSwitchPrevComm}, {"prev_tid", kTID, abi.OffTid},
		{"prev_prio", kPrio16, abi.OffSwitchPrevPrio},
		{"prev_state", kState, abi.OffSwitchPrevState}, {"next_comm", kComm, abi.OffSwitchNextComm},
		{"next_tid", kS32, abi.OffSwitchNextTid}, {"next_prio", kPrio16, abi.OffSwitchNextPrio},
		{"next_pid", kS32, abi.OffSwitchNextPid}, {"prev_state_raw", kX32, abi.OffSwitchPrevState},
	}},
	SchedWaking:    {"sched_waking", wakeFields},
	SchedWakeupNew: {"sched_wakeup_new", wakeFields},
	SchedMigrate: {"sched_migrate_task", []field{
		{"comm", kComm, abi.OffMigrateComm}, {"tid", kS32, abi.OffMigrateTid}, {"prio", kPrio32, abi.OffMigratePrio},
		{"orig_cpu", kS32, abi.OffMigrateOrigCpu}, {"dest_cpu", kS32, abi.OffMigrateDestCpu},
	}},
	IRQEntry:     {"irq_handler_entry", []field{{"irq", kS32, abi.OffIrqIrq}, {"name", kIRQName, abi.OffIrqName}}},
	IRQExit:      {"irq_handler_exit", []field{{"irq", kS32, abi.OffIrqIrq}, {"ret", kS32, abi.OffIrqRet}}},
	SoftirqEntry: {"irq_softirq_entry", []field{{"vec", kU32, abi.OffSoftirqVec}, {"after_irq", kS32, abi.OffSoftirqIrq}}},
	SoftirqExit:  {"irq_softirq_exit", []field{{"vec", kU32, abi.OffSoftirqVec}}},
	HrtimerEntry: {"timer_hrtimer_expire_entry", []field{
		{"hrtimer", kX64, abi.OffHrtimerHrtimer}, {"now", kS64, abi.OffHrtimerNow},
		{"function", kX64, abi.OffHrtimerFunction},
	}},
	HrtimerExit: {"timer_hrtimer_expire_exit", []field{{"hrtimer", kX64, abi.OffHrtimerHrtimer}}},
	BlockInsert: {"block_rq_insert", blockFields},
	BlockIssue:  {"block_rq_issue", blockFields},
	BlockComplete: {"block_rq_complete", []field{
		{"dev", kU32, abi.OffBlockDev}, {"sector", kU64, abi.OffBlockSector},
		{"nr_sector", kSectors, abi.OffBlockBytes},
		{"error", kErrno, abi.OffBlockError}, {"rwbs", kRWBS, abi.OffBlockCmdFlags},
		{"bytes", kU32, abi.OffBlockBytes}, {"tid", kTID, abi.OffTid}, {"comm", kComm, abi.OffBlockComm},
		{"rq", kX64, abi.OffBlockRq}, {"cmd_flags", kX32, abi.OffBlockCmdFlags}, {"status", kS32, abi.OffBlockError},
	}},
	WorkStart: {"workqueue_execute_start", workFields},
	WorkEnd:   {"workqueue_execute_end", workFields},
	ProcessFork: {"sched_process_fork", []field{
		{"parent_comm", kComm, abi.OffProcessComm}, {"parent_tid", kTID, abi.OffTid},
		{"parent_pid", kS32, abi.OffProcessPid},
		{"child_comm", kComm, abi.OffProcessChildComm}, {"child_tid", kS32, abi.OffProcessChildTid},
		{"child_pid", kS32, abi.OffProcessChildPid}, {"prio", kPrio32, abi.OffProcessPrio},
	}},
	ProcessExec: {"sched_process_exec", []field{
		{"filename", kCommText, abi.OffProcessComm}, {"tid", kTID, abi.OffTid},
		{"old_tid", kS32, abi.OffProcessChildTid},
		{"pid", kS32, abi.OffProcessPid}, {"prio", kPrio32, abi.OffProcessPrio},
	}},
	ProcessExit: {"sched_process_exit", []field{
		{"comm", kComm, abi.OffProcessComm}, {"tid", kTID, abi.OffTid}, {"prio", kPrio32, abi.OffProcessPrio},
		{"pid", kS32, abi.OffProcessPid},
	}},
	SyscallEntry: {"syscall_entry_unknown", []field{
		{"id", kU32, abi.OffSyscallNr}, {"args", kArgs, abi.OffSyscallArgs}, {"caller_pid", kS32, abi.OffSyscallPid},
	}},
	SyscallExit: {"syscall_exit_unknown", []field{
		{"id", kU32, abi.OffSyscallNr}, {"ret", kS64, abi.OffSyscallRet}, {"caller_pid", kS32, abi.OffSyscallPid},
	}},
	WorkQueued: {"workqueue_queue_work", []field{
		{"work", kX64, abi.OffWorkQueueWork}, {"function", kX64, abi.OffWorkQueueFunction},
		{"req_cpu", kS32, abi.OffWorkQueueReqCpu},
		{"workqueue", kRecordName, abi.OffWorkQueueName}, {"context", kX32, abi.OffWorkQueueContext},
	}},
	TimerEntry: {"timer_expire_entry", []field{
		{"timer", kX64, abi.OffTimerTimer}, {"now", kU64, abi.OffTimerNow}, {"function", kX64, abi.OffTimerFunction},
		{"waiter", kS32, abi.OffTimerWaiter}, {"peer", kX32, abi.OffTimerAddress}, {"port", kU32, abi.OffTimerPort},
		{"tcp", kX32, abi.OffTimerTcp},
		{"accept_queue", kU32, abi.OffTimerAcceptQueue}, {"accept_limit", kU32, abi.OffTimerAcceptLimit},
	}},
	TimerExit:   {"timer_expire_exit", []field{{"timer", kX64, abi.OffTimerTimer}}},
	FaultUser:   {"x86_exceptions_page_fault_user", faultFields},
	FaultKernel: {"x86_exceptions_page_fault_kernel", faultFields},
	ReclaimBegin: {"mm_vmscan_direct_reclaim_begin", []field{
		{"order", kS32, abi.OffReclaimOrder}, {"memcg", kU32, abi.OffReclaimKind},
	}},
	ReclaimEnd: {"mm_vmscan_direct_reclaim_end", []field{
		{"nr_reclaimed", kU64, abi.OffReclaimReclaimed}, {"memcg", kU32, abi.OffReclaimKind},
	}},
	CompactionBegin: {"mm_compaction_begin", []field{{"sync", kU32, abi.OffReclaimSync}}},
	CompactionEnd:   {"mm_compaction_end", []field{{"status", kS32, abi.OffReclaimStatus}}},
	LockBegin: {"lock_contention_begin", []field{
		{"lock_addr", kX64, abi.OffLockLock}, {"flags", kX32, abi.OffLockFlags},
		{"owner_tid", kS32, abi.OffLockOwnerTid},
	}},
	LockEnd: {"lock_contention_end", []field{
		{"lock_addr", kX64, abi.OffLockLock}, {"ret", kS32, abi.OffLockRet},
	}},
	FileLockRequest: {"tailcam_file_lock", []field{
		{"inode", kU64, abi.OffFileLockInode}, {"dev", kU32, abi.OffFileLockDevice}, {"ret", kS32, abi.OffFileLockRet},
		{"start", kU64, abi.OffFileLockStart}, {"end", kU64, abi.OffFileLockEnd}, {"flags", kX32, abi.OffFileLockFlags},
		{"type", kU32, abi.OffFileLockType}, {"pid", kS32, abi.OffFileLockPid},
		{"holder_pid", kS32, abi.OffFileLockHolderPid},
	}},
	CPUIdle:      {"power_cpu_idle", powerFields},
	CPUFrequency: {"power_cpu_frequency", powerFields},
	NetQueue:     {"net_dev_queue", append(netFields[:len(netFields):len(netFields)], field{"context", kX32, abi.OffNetContext})},
	NetReceive:   {"net_if_receive_skb", netFields},
	NapiPoll: {"napi_poll", []field{
		{"dev_name", kRecordName, abi.OffNetDev}, {"work", kS32, abi.OffNetWork}, {"budget", kS32, abi.OffNetBudget},
	}},
	CgroupThrottle:   {"tailcam_cgroup_throttle", quotaFields},
	CgroupUnthrottle: {"tailcam_cgroup_unthrottle", quotaFields},
	KVMEntry:         {"kvm_x86_entry", []field{{"vcpu_id", kU32, abi.OffKvmVcpu}}},
	KVMExit: {"kvm_x86_exit", []field{
		{"exit_reason", kU32, abi.OffKvmReason}, {"guest_rip", kX64, abi.OffKvmIp}, {"vcpu_id", kU32, abi.OffKvmVcpu},
	}},
	Steal: {"tailcam_steal", []field{
		{"stolen_ns", kU64, abi.OffStealStolenNs}, {"since_ns", kU64, abi.OffStealSinceNs},
	}},
	Interrupts: {"tailcam_interrupts", []field{
		{"vec", kS32, abi.OffInterruptsVec}, {"total_ns", kU32, abi.OffInterruptsTotalNs},
		{"count", kU32, abi.OffInterruptsCount}, {"since_ns", kU64, abi.OffInterruptsSinceNs},
		{"sampled", kU32, abi.OffInterruptsSampled},
	}},
	WaitStack: {"tailcam_wait_stack", stackFields},
	Sample:    {"tailcam_sample", stackFields},
	RunStack:  {"tailcam_run_stack", stackFields},
	DumpStart: {"lttng_statedump_start", nil},
	DumpTask: {"lttng_statedump_process_state", []field{
		{"tid", kS32, valTID}, {"pid", kS32, valPID}, {"ppid", kS32, valPPID}, {"name", kComm, valName},
		{"type", kS32, valKernel}, {"mode", kS32, valMode}, {"submode", kS32, valSubmode},
		{"status", kS32, valStatus}, {"cpu", kU32, valCPU},
	}},
	// The pid is what LTTng had here before 2.11, and what lttng-analyses wants.
	DumpFile: {"lttng_statedump_file_descriptor", []field{
		{"pid", kS32, valPID}, {"fd", kS32, valFD}, {"flags", kU32, valFlags}, {"filename", kText, valText},
	}},
	DumpDevice: {"lttng_statedump_block_device", []field{{"dev", kU32, valDev}, {"diskname", kText, valText}}},
	DumpEnd:    {"lttng_statedump_end", nil},

	OutlierEntry: {"tailcam_entry", markerFields},
	OutlierExit:  {"tailcam_exit", markerFields},
}

// Places of values.
const (
	valRule = iota
	valTrack
	valDelay
	valTID
	valPID
	valPPID
	valName
	valOutlier
	valKernel
	valMode
	valSubmode
	valStatus
	valCPU
	valFD
	valFlags
	valText
	valDev
	numValues
)

// values are the fields of an event that comes from no record.
type values struct {
	num  [numValues]uint64
	text [numValues]string
}

// ofRecord tells whether the events of a type come from the kernel's records.
func (t Type) ofRecord() bool {
	return t >= SchedSwitch && t <= Interrupts || t >= WaitStack && t <= FileLockRequest
}

// memcgClasses are the names of ReclaimBegin and ReclaimEnd for a cgroup: an
// event's id is then its type plus memcgID.
var memcgClasses = map[Type]string{
	ReclaimBegin: "mm_vmscan_memcg_reclaim_begin", ReclaimEnd: "mm_vmscan_memcg_reclaim_end",
}

const memcgID = 54 - uint16(ReclaimBegin) // just below DumpStart

// classOf returns nil for types that are not events.
func classOf(t Type) *class {
	if int(t) >= len(classes) || classes[t].name == "" {
		return nil
	}
	return &classes[t]
}
