package tracker

import (
	"slices"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/rules"
)

// Types of records, as the kernel side numbers them.
const (
	recSwitch          = uint16(bpf.TailcamRecordTypeREC_SWITCH)
	recWaking          = uint16(bpf.TailcamRecordTypeREC_WAKING)
	recWakeupNew       = uint16(bpf.TailcamRecordTypeREC_WAKEUP_NEW)
	recMigrate         = uint16(bpf.TailcamRecordTypeREC_MIGRATE)
	recIrqEntry        = uint16(bpf.TailcamRecordTypeREC_IRQ_ENTRY)
	recIrqExit         = uint16(bpf.TailcamRecordTypeREC_IRQ_EXIT)
	recSoftirqEntry    = uint16(bpf.TailcamRecordTypeREC_SOFTIRQ_ENTRY)
	recSoftirqExit     = uint16(bpf.TailcamRecordTypeREC_SOFTIRQ_EXIT)
	recHrtimerEntry    = uint16(bpf.TailcamRecordTypeREC_HRTIMER_ENTRY)
	recHrtimerExit     = uint16(bpf.TailcamRecordTypeREC_HRTIMER_EXIT)
	recBlockInsert     = uint16(bpf.TailcamRecordTypeREC_BLOCK_INSERT)
	recBlockIssue      = uint16(bpf.TailcamRecordTypeREC_BLOCK_ISSUE)
	recBlockComplete   = uint16(bpf.TailcamRecordTypeREC_BLOCK_COMPLETE)
	recWorkStart       = uint16(bpf.TailcamRecordTypeREC_WORK_START)
	recWorkEnd         = uint16(bpf.TailcamRecordTypeREC_WORK_END)
	recFork            = uint16(bpf.TailcamRecordTypeREC_FORK)
	recExec            = uint16(bpf.TailcamRecordTypeREC_EXEC)
	recExit            = uint16(bpf.TailcamRecordTypeREC_EXIT)
	recSyscallEntry    = uint16(bpf.TailcamRecordTypeREC_SYSCALL_ENTRY)
	recSyscallExit     = uint16(bpf.TailcamRecordTypeREC_SYSCALL_EXIT)
	recWorkQueue       = uint16(bpf.TailcamRecordTypeREC_WORK_QUEUE)
	recTimerEntry      = uint16(bpf.TailcamRecordTypeREC_TIMER_ENTRY)
	recTimerExit       = uint16(bpf.TailcamRecordTypeREC_TIMER_EXIT)
	recFaultUser       = uint16(bpf.TailcamRecordTypeREC_FAULT_USER)
	recFaultKernel     = uint16(bpf.TailcamRecordTypeREC_FAULT_KERNEL)
	recReclaimBegin    = uint16(bpf.TailcamRecordTypeREC_RECLAIM_BEGIN)
	recReclaimEnd      = uint16(bpf.TailcamRecordTypeREC_RECLAIM_END)
	recCompactionBegin = uint16(bpf.TailcamRecordTypeREC_COMPACTION_BEGIN)
	recCompactionEnd   = uint16(bpf.TailcamRecordTypeREC_COMPACTION_END)
	recLockBegin       = uint16(bpf.TailcamRecordTypeREC_LOCK_BEGIN)
	recLockEnd         = uint16(bpf.TailcamRecordTypeREC_LOCK_END)
	recCPUIdle         = uint16(bpf.TailcamRecordTypeREC_CPU_IDLE)
	recCPUFrequency    = uint16(bpf.TailcamRecordTypeREC_CPU_FREQUENCY)
	recNetQueue        = uint16(bpf.TailcamRecordTypeREC_NET_QUEUE)
	recNetReceive      = uint16(bpf.TailcamRecordTypeREC_NET_RECEIVE)
	recNapiPoll        = uint16(bpf.TailcamRecordTypeREC_NAPI_POLL)
	recThrottle        = uint16(bpf.TailcamRecordTypeREC_THROTTLE)
	recUnthrottle      = uint16(bpf.TailcamRecordTypeREC_UNTHROTTLE)
	recKvmEntry        = uint16(bpf.TailcamRecordTypeREC_KVM_ENTRY)
	recKvmExit         = uint16(bpf.TailcamRecordTypeREC_KVM_EXIT)
	recSteal           = uint16(bpf.TailcamRecordTypeREC_STEAL)
)

// hooks lists every program, in the order of attaching.
var hooks = slices.Concat(trackerHooks, recorderHooks)

// trackerHooks are wanted by trackers, and by the recorder, in an order that
// matters: whatever ends pending work comes before what begins it, so nothing
// is left pending by the start.
var trackerHooks = []hook{
	{program: "sched_waking", tracepoint: "sched_waking", trackers: []rules.Track{rules.Wakeup, rules.OffCPU, rules.Chain}, groups: []string{"sched"}, record: recWaking},
	{program: "sched_migrate_task", tracepoint: "sched_migrate_task", trackers: []rules.Track{rules.Wakeup}, groups: []string{"sched"}, record: recMigrate},
	{program: "sched_wakeup_new", tracepoint: "sched_wakeup_new", trackers: []rules.Track{rules.Wakeup, rules.Chain}, groups: []string{"sched"}, record: recWakeupNew},
	{program: "sched_switch", tracepoint: "sched_switch", trackers: []rules.Track{rules.Wakeup, rules.OffCPU, rules.Chain}, groups: []string{"sched"}, record: recSwitch},
	{program: "sched_process_exit", tracepoint: "sched_process_exit", trackers: []rules.Track{rules.Syscall}, groups: []string{"process"}, record: recExit},
	{program: "sched_process_exec", tracepoint: "sched_process_exec", trackers: []rules.Track{rules.Syscall}, groups: []string{"process"}, record: recExec},
	{program: "sched_process_fork", tracepoint: "sched_process_fork", groups: []string{"process"}, record: recFork},
	{program: "sys_exit", tracepoint: "sys_exit", trackers: []rules.Track{rules.Syscall}, groups: []string{"syscall"}, record: recSyscallExit},
	{program: "sys_enter", tracepoint: "sys_enter", trackers: []rules.Track{rules.Syscall, rules.Span}, groups: []string{"syscall"}, record: recSyscallEntry},
	{program: "block_rq_complete", tracepoint: "block_rq_complete", trackers: []rules.Track{rules.Block}, groups: []string{"block"}, record: recBlockComplete},
	{program: "block_rq_merge", tracepoint: "block_rq_merge", trackers: []rules.Track{rules.Block}},
	{program: "block_rq_requeue", tracepoint: "block_rq_requeue", trackers: []rules.Track{rules.Block}},
	{program: "block_rq_issue", tracepoint: "block_rq_issue", trackers: []rules.Track{rules.Block}, groups: []string{"block"}, record: recBlockIssue},
	{program: "block_rq_insert", tracepoint: "block_rq_insert", trackers: []rules.Track{rules.Block}, groups: []string{"block"}, record: recBlockInsert},
	{program: "irq_handler_exit", tracepoint: "irq_handler_exit", trackers: []rules.Track{rules.IRQ, rules.Chain}, groups: []string{"irq"}, record: recIrqExit},
	{program: "irq_handler_entry", tracepoint: "irq_handler_entry", trackers: []rules.Track{rules.IRQ, rules.Chain}, groups: []string{"irq"}, record: recIrqEntry},
	{program: "softirq_exit", tracepoint: "softirq_exit", trackers: []rules.Track{rules.Softirq, rules.Chain}, groups: []string{"irq"}, record: recSoftirqExit},
	{program: "softirq_entry", tracepoint: "softirq_entry", trackers: []rules.Track{rules.Softirq, rules.Chain}, groups: []string{"irq"}, record: recSoftirqEntry},
	{program: "softirq_raise", tracepoint: "softirq_raise", trackers: []rules.Track{rules.Softirq, rules.Chain}},
	{program: "hrtimer_expire_exit", tracepoint: "hrtimer_expire_exit", trackers: []rules.Track{rules.Chain}, groups: []string{"timer"}, record: recHrtimerExit},
	{program: "hrtimer_expire_entry", tracepoint: "hrtimer_expire_entry", trackers: []rules.Track{rules.Chain}, groups: []string{"timer"}, record: recHrtimerEntry},
}

// recorderHooks are wanted by the recorder alone. One that is missing leaves
// the rest of its group as it is.
var recorderHooks = []hook{
	{program: "workqueue_execute_end", tracepoint: "workqueue_execute_end", groups: []string{"workqueue"}, record: recWorkEnd},
	{program: "workqueue_execute_start", tracepoint: "workqueue_execute_start", groups: []string{"workqueue"}, record: recWorkStart},
	{program: "workqueue_queue_work", tracepoint: "workqueue_queue_work", groups: []string{"workqueue"}, record: recWorkQueue},
	{program: "timer_expire_exit", tracepoint: "timer_expire_exit", groups: []string{"timer"}, record: recTimerExit},
	{program: "timer_expire_entry", tracepoint: "timer_expire_entry", groups: []string{"timer"}, record: recTimerEntry},
	{program: "direct_reclaim_end", tracepoint: "mm_vmscan_direct_reclaim_end", groups: []string{"reclaim", "memory"}, record: recReclaimEnd},
	{program: "direct_reclaim_begin", tracepoint: "mm_vmscan_direct_reclaim_begin", groups: []string{"reclaim", "memory"}, record: recReclaimBegin},
	{program: "memcg_reclaim_end", tracepoint: "mm_vmscan_memcg_reclaim_end", groups: []string{"reclaim", "memory"}, record: recReclaimEnd},
	{program: "memcg_reclaim_begin", tracepoint: "mm_vmscan_memcg_reclaim_begin", groups: []string{"reclaim", "memory"}, record: recReclaimBegin},
	{program: "compaction_end", tracepoint: "mm_compaction_end", groups: []string{"reclaim", "memory"}, record: recCompactionEnd},
	{program: "compaction_begin", tracepoint: "mm_compaction_begin", groups: []string{"reclaim", "memory"}, record: recCompactionBegin},
	{program: "page_fault_user", tracepoint: "page_fault_user", groups: []string{"memory"}, record: recFaultUser},
	{program: "page_fault_kernel", tracepoint: "page_fault_kernel", groups: []string{"memory"}, record: recFaultKernel},
	{program: "contention_end", tracepoint: "contention_end", groups: []string{"lock"}, record: recLockEnd},
	{program: "contention_begin", tracepoint: "contention_begin", groups: []string{"lock"}, record: recLockBegin},
	{program: "cpu_idle", tracepoint: "cpu_idle", groups: []string{"power"}, record: recCPUIdle},
	{program: "cpu_frequency", tracepoint: "cpu_frequency", groups: []string{"power"}, record: recCPUFrequency},
	{program: "net_dev_queue", tracepoint: "net_dev_queue", groups: []string{"net"}, record: recNetQueue},
	{program: "netif_receive_skb", tracepoint: "netif_receive_skb", groups: []string{"net"}, record: recNetReceive},
	{program: "napi_poll", tracepoint: "napi_poll", groups: []string{"net"}, record: recNapiPoll},
	{program: "unthrottle_cfs_rq", tracepoint: "unthrottle_cfs_rq", groups: []string{"throttle"}, record: recUnthrottle, function: true},
	{program: "throttle_cfs_rq", tracepoint: "throttle_cfs_rq", groups: []string{"throttle"}, record: recThrottle, function: true},
	{program: "kvm_exit", tracepoint: "kvm_exit", groups: []string{"kvm"}, record: recKvmExit, module: "kvm", first: "kvm_vcpu"},
	{program: "kvm_entry", tracepoint: "kvm_entry", groups: []string{"kvm"}, record: recKvmEntry, module: "kvm", first: "kvm_vcpu"},
}

// Groups are the names that recorder.events may hold. What memory has includes
// all of reclaim.
var Groups = []string{
	"sched", "irq", "timer", "block", "workqueue", "process", "syscall",
	"reclaim", "memory", "lock", "power", "net", "throttle", "kvm",
}
