package trace

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

type kind uint8

// How a field lies in CTF, and where its value comes from: off is a place in
// the record, or in values for events that come from no record. Little endian,
// byte aligned.
const (
	kS32      kind = iota // 4 signed bytes of the record
	kU32                  // 4 unsigned bytes
	kX32                  // the same, shown in base 16
	kS64                  // 8 signed bytes
	kU64                  // 8 unsigned bytes
	kX64                  // the same, shown in base 16
	kComm                 // 16 characters
	kIRQName              // a string out of irqNameLen bytes
	kName24               // a string out of 24 bytes
	kPrio16               // signed 32 bits: 2 bytes of the record, minus maxRTPrio
	kPrio32               // signed 32 bits: 4 bytes of the record, minus maxRTPrio
	kState                // signed 64 bits, derived: lttngState
	kRWBS                 // unsigned 32 bits, derived: lttngRWBS
	kSectors              // unsigned 32 bits, derived: bytes / 512
	kErrno                // signed 32 bits, derived: statusErrno
	kTID                  // signed 32 bits, derived: the record's tid
	kCommText             // a string out of a comm
	kText                 // a string, in values only
	kAddress              // a string: 8 bytes of the record in base 16
	kArgs                 // the arguments of a system call, each as kX64
	kSkip                 // read only: off bytes that mean nothing to us
	kSkipText             // read only: a string that means nothing to us
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
		{"comm", kComm, offWakeComm}, {"tid", kS32, offWakeTID}, {"prio", kPrio32, offWakePrio},
		{"target_cpu", kS32, offWakeTargetCPU}, {"pid", kS32, offWakePID},
	}
	softirqFields = []field{{"vec", kU32, offSoftirqVec}}
	markerFields  = []field{
		{"rule", kText, valRule}, {"track", kText, valTrack}, {"delay_ns", kS64, valDelay},
		{"tid", kS32, valTID}, {"pid", kS32, valPID}, {"comm", kComm, valName}, {"outlier", kU64, valOutlier},
	}
	workFields  = []field{{"work", kX64, offWork}, {"function", kX64, offWorkFunction}}
	faultFields = []field{{"address", kX64, offFaultAddress}, {"ip", kX64, offFaultIP}, {"error_code", kX64, offFaultCode}}
	netFields   = []field{{"skbaddr", kX64, offNetSKB}, {"len", kU32, offNetBytes}, {"name", kName24, offNetDev}}
	powerFields = []field{{"state", kU32, offPowerState}, {"cpu_id", kU32, offPowerCPU}}
	quotaFields = []field{{"cgroup", kU64, offThrottleCgroup}, {"cpu", kU32, offThrottleCPU}}
	blockFields = []field{
		{"dev", kU32, offBlockDev}, {"sector", kU64, offBlockSector}, {"nr_sector", kSectors, offBlockBytes},
		{"bytes", kU32, offBlockBytes}, {"tid", kTID, offTID}, {"rwbs", kRWBS, offBlockFlags},
		{"comm", kComm, offBlockComm}, {"rq", kX64, offBlockRQ}, {"cmd_flags", kX32, offBlockFlags},
	}
)

// classes is indexed by Type. Names of the system calls' classes are those
// for calls without a name; the others have the same fields.
var classes = [...]class{
	SchedSwitch: {"sched_switch", []field{
		{"prev_comm", kComm, offSwitchPrevComm}, {"prev_tid", kTID, offTID}, {"prev_prio", kPrio16, offSwitchPrevPrio},
		{"prev_state", kState, offSwitchPrevState}, {"next_comm", kComm, offSwitchNextComm},
		{"next_tid", kS32, offSwitchNextTID}, {"next_prio", kPrio16, offSwitchNextPrio},
		{"next_pid", kS32, offSwitchNextPID}, {"prev_state_raw", kX32, offSwitchPrevState},
	}},
	SchedWaking:    {"sched_waking", wakeFields},
	SchedWakeupNew: {"sched_wakeup_new", wakeFields},
	SchedMigrate: {"sched_migrate_task", []field{
		{"comm", kComm, offMigrateComm}, {"tid", kS32, offMigrateTID}, {"prio", kPrio32, offMigratePrio},
		{"orig_cpu", kS32, offMigrateOrigCPU}, {"dest_cpu", kS32, offMigrateDestCPU},
	}},
	IRQEntry:     {"irq_handler_entry", []field{{"irq", kS32, offIRQ}, {"name", kIRQName, offIRQName}}},
	IRQExit:      {"irq_handler_exit", []field{{"irq", kS32, offIRQ}, {"ret", kS32, offIRQRet}}},
	SoftirqEntry: {"irq_softirq_entry", softirqFields},
	SoftirqExit:  {"irq_softirq_exit", softirqFields},
	HrtimerEntry: {"timer_hrtimer_expire_entry", []field{
		{"hrtimer", kX64, offHrtimer}, {"now", kS64, offHrtimerNow}, {"function", kX64, offHrtimerFunction},
	}},
	HrtimerExit: {"timer_hrtimer_expire_exit", []field{{"hrtimer", kX64, offHrtimer}}},
	BlockInsert: {"block_rq_insert", blockFields},
	BlockIssue:  {"block_rq_issue", blockFields},
	BlockComplete: {"block_rq_complete", []field{
		{"dev", kU32, offBlockDev}, {"sector", kU64, offBlockSector}, {"nr_sector", kSectors, offBlockBytes},
		{"error", kErrno, offBlockError}, {"rwbs", kRWBS, offBlockFlags},
		{"bytes", kU32, offBlockBytes}, {"tid", kTID, offTID}, {"comm", kComm, offBlockComm},
		{"rq", kX64, offBlockRQ}, {"cmd_flags", kX32, offBlockFlags}, {"status", kS32, offBlockError},
	}},
	WorkStart: {"workqueue_execute_start", workFields},
	WorkEnd:   {"workqueue_execute_end", workFields},
	ProcessFork: {"sched_process_fork", []field{
		{"parent_comm", kComm, offProcessComm}, {"parent_tid", kTID, offTID}, {"parent_pid", kS32, offProcessPID},
		{"child_comm", kComm, offProcessChildComm}, {"child_tid", kS32, offProcessChildTID},
		{"child_pid", kS32, offProcessChildPID}, {"prio", kPrio32, offProcessPrio},
	}},
	ProcessExec: {"sched_process_exec", []field{
		{"filename", kCommText, offProcessComm}, {"tid", kTID, offTID}, {"old_tid", kS32, offProcessChildTID},
		{"pid", kS32, offProcessPID}, {"prio", kPrio32, offProcessPrio},
	}},
	ProcessExit: {"sched_process_exit", []field{
		{"comm", kComm, offProcessComm}, {"tid", kTID, offTID}, {"prio", kPrio32, offProcessPrio},
		{"pid", kS32, offProcessPID},
	}},
	SyscallEntry: {"syscall_entry_unknown", []field{
		{"id", kU32, offSyscallNR}, {"args", kArgs, offSyscallArg}, {"caller_pid", kS32, offSyscallPID},
	}},
	SyscallExit: {"syscall_exit_unknown", []field{
		{"id", kU32, offSyscallNR}, {"ret", kS64, offSyscallRet}, {"caller_pid", kS32, offSyscallPID},
	}},
	WorkQueued: {"workqueue_queue_work", []field{
		{"work", kX64, offQueueWork}, {"function", kX64, offQueueFunction}, {"req_cpu", kS32, offQueueCPU},
		{"workqueue", kName24, offQueueName},
	}},
	TimerEntry: {"timer_expire_entry", []field{
		{"timer", kX64, offTimer}, {"now", kU64, offTimerNow}, {"function", kX64, offTimerFunction},
	}},
	TimerExit:   {"timer_expire_exit", []field{{"timer", kX64, offTimer}}},
	FaultUser:   {"x86_exceptions_page_fault_user", faultFields},
	FaultKernel: {"x86_exceptions_page_fault_kernel", faultFields},
	ReclaimBegin: {"mm_vmscan_direct_reclaim_begin", []field{
		{"order", kS32, offReclaimOrder}, {"memcg", kU32, offReclaimKind},
	}},
	ReclaimEnd: {"mm_vmscan_direct_reclaim_end", []field{
		{"nr_reclaimed", kU64, offReclaimed}, {"memcg", kU32, offReclaimKind},
	}},
	CompactionBegin: {"mm_compaction_begin", []field{{"sync", kU32, offReclaimSync}}},
	CompactionEnd:   {"mm_compaction_end", []field{{"status", kS32, offReclaimStatus}}},
	LockBegin: {"lock_contention_begin", []field{
		{"lock_addr", kX64, offLock}, {"flags", kX32, offLockFlags}, {"owner_tid", kS32, offLockOwner},
	}},
	LockEnd:          {"lock_contention_end", []field{{"lock_addr", kX64, offLock}, {"ret", kS32, offLockRet}}},
	CPUIdle:          {"power_cpu_idle", powerFields},
	CPUFrequency:     {"power_cpu_frequency", powerFields},
	NetQueue:         {"net_dev_queue", netFields},
	NetReceive:       {"net_if_receive_skb", netFields},
	NapiPoll:         {"napi_poll", []field{{"dev_name", kName24, offNetDev}, {"work", kS32, offNetWork}, {"budget", kS32, offNetBudget}}},
	CgroupThrottle:   {"tailcam_cgroup_throttle", quotaFields},
	CgroupUnthrottle: {"tailcam_cgroup_unthrottle", quotaFields},
	KVMEntry:         {"kvm_x86_entry", []field{{"vcpu_id", kU32, offKVMCPU}}},
	KVMExit: {"kvm_x86_exit", []field{
		{"exit_reason", kU32, offKVMReason}, {"guest_rip", kX64, offKVMIP}, {"vcpu_id", kU32, offKVMCPU},
	}},
	Steal:     {"tailcam_steal", []field{{"stolen_ns", kU64, offStolen}, {"since_ns", kU64, offStolenSince}}},
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
func (t Type) ofRecord() bool { return t >= SchedSwitch && t <= Steal }

// memcgClasses are the names of ReclaimBegin and ReclaimEnd for a cgroup: an
// event's id is then its type plus memcgID.
var memcgClasses = map[Type]string{
	ReclaimBegin: "mm_vmscan_memcg_reclaim_begin", ReclaimEnd: "mm_vmscan_memcg_reclaim_end",
}

const memcgID = 48 - uint16(ReclaimBegin)

// classOf returns nil for types that are not events.
func classOf(t Type) *class {
	if int(t) >= len(classes) || classes[t].name == "" {
		return nil
	}
	return &classes[t]
}
