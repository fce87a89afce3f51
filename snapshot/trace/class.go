package trace

// The table below is the only place that knows how an event lies in CTF: the
// metadata, the encoder and the decoder all follow it. Names, order and
// meaning of the fields are those of lttng-modules 2.13 for kernel 6.1 and
// later, so that readers of LTTng kernel traces understand them; fields of
// ours come after LTTng's. Differences:
//
//   - sched_process_exec.filename holds the new comm: the record has no path.
//   - sched_process_fork has no namespace fields (vtids, *_ns_inum).
//   - irq_softirq_*.vec has 32 bits where LTTng has 8.
//   - syscall_* events carry the number and pid, not the arguments.
//
// The current task's id is the event context "tid", as `lttng add-context -k
// -t tid` would have it.

// layoutVersion is written to the trace's environment. A change to the table
// that moves bytes needs a new number, and a reader for the old one.
const layoutVersion = 1

type kind uint8

// How a field lies in CTF, and where its value comes from. Little endian,
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
	kText                 // a string, markers only
)

type field struct {
	name string
	kind kind
	off  int // in the record
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
	// Markers do not come out of a record: appendMarker and readMarker follow
	// this order by hand.
	markerFields = []field{
		{name: "rule", kind: kText}, {name: "track", kind: kText}, {name: "delay_ns", kind: kS64},
		{name: "tid", kind: kS32}, {name: "pid", kind: kS32}, {name: "comm", kind: kComm},
		{name: "outlier", kind: kU64},
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
	SyscallEntry: {"syscall_entry_unknown", []field{{"nr", kU32, offSyscallNR}, {"pid", kS32, offSyscallPID}}},
	SyscallExit: {"syscall_exit_unknown", []field{
		{"ret", kS64, offSyscallRet}, {"nr", kU32, offSyscallNR}, {"pid", kS32, offSyscallPID},
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
	Steal:        {"tailcam_steal", []field{{"stolen_ns", kU64, offStolen}, {"since_ns", kU64, offStolenSince}}},
	OutlierEntry: {"tailcam_entry", markerFields},
	OutlierExit:  {"tailcam_exit", markerFields},
}

// classOf returns nil for types that are not events.
func classOf(t Type) *class {
	if int(t) >= len(classes) || classes[t].name == "" {
		return nil
	}
	return &classes[t]
}

// Event ids in CTF. Up to firstSyscallID an id is the Type. A system call
// with a name has two of its own, entry (even) and exit (odd); others use the
// ids of SyscallEntry and SyscallExit.
const (
	firstSyscallID  = 64
	namedSyscalls   = 4096 // numbers from here on have no id of their own
	extendedEventID = 65535
)

func syscallID(t Type, nr uint32) uint16 {
	id := firstSyscallID + 2*uint16(nr)
	if t == SyscallExit {
		id++
	}
	return id
}

func typeOfID(id uint32) Type {
	switch {
	case id < firstSyscallID:
		return Type(id)
	case id >= firstSyscallID+2*namedSyscalls:
		return 0
	case id%2 == 0:
		return SyscallEntry
	default:
		return SyscallExit
	}
}
