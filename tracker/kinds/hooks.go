package kinds

import (
	"slices"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf"
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// Hook is one program on one tracepoint or function of the kernel. Who needs it
// stands in All; recorder groups that have its records, here.
type Hook struct {
	Program    string // in bpf/tailcam.bpf.c
	Tracepoint string // its BTF name is btf_trace_<tracepoint>
	Groups     []string
	Record     uint16 // type of these records
	Function   bool   // it is no tracepoint but the end of a function
	Module     string // of the kernel that may have it
	First      string // struct that its first argument must point to: others are of another architecture
	Clock      bool   // it is no tracepoint but a timer on each CPU
	Part       bool   // it is no program but a part of another one at that tracepoint
	Variable   string // per-CPU variable of the kernel that it reads
	Skipped    string // the program at the same tracepoint whose skipped runs it makes up for, where tasks are preempted in it
}

// Site is where the program is attached.
func (h *Hook) Site() string {
	if h.Clock {
		return "perf_event:" + h.Tracepoint
	}
	if h.Function {
		return "fexit:" + h.Tracepoint
	}
	return "tp_btf:" + h.Tracepoint
}

// Trackers are those that cannot do without it, in the order of All; nil: none.
func (h *Hook) Trackers() []rules.Track {
	var list []rules.Track
	for i := range All {
		if slices.Contains(All[i].Hooks, h.Program) {
			list = append(list, All[i].Track)
		}
	}
	return list
}

// Hooks lists every program, in the order of attaching.
var Hooks = slices.Concat(trackerHooks, RecorderHooks)

// trackerHooks are wanted by trackers, and by the recorder, in an order that
// matters: whatever ends pending work comes before what begins it, so nothing
// is left pending by the start.
var trackerHooks = []Hook{
	{Program: "sched_waking", Tracepoint: "sched_waking", Groups: []string{"sched"}, Record: abi.RecWaking},
	{Program: "sched_migrate_task", Tracepoint: "sched_migrate_task", Groups: []string{"sched"}, Record: abi.RecMigrate},
	{Program: "sched_wakeup_new", Tracepoint: "sched_wakeup_new", Groups: []string{"sched"}, Record: abi.RecWakeupNew},
	{Program: "sched_switch", Tracepoint: "sched_switch", Groups: []string{"sched"}, Record: abi.RecSwitch},
	{Program: "sched_process_exit", Tracepoint: "sched_process_exit", Groups: []string{"process"}, Record: abi.RecExit},
	{Program: "sched_process_exec", Tracepoint: "sched_process_exec", Groups: []string{"process"}, Record: abi.RecExec},
	{Program: "sched_process_fork", Tracepoint: "sched_process_fork", Groups: []string{"process"}, Record: abi.RecFork},
	{Program: "sys_exit", Tracepoint: "sys_exit", Groups: []string{"syscall"}, Record: abi.RecSyscallExit},
	{Program: "sys_exit_skipped", Tracepoint: "sys_exit", Skipped: "sys_exit"},
	{Program: "sys_enter", Tracepoint: "sys_enter", Groups: []string{"syscall"}, Record: abi.RecSyscallEntry},
	{Program: "block_rq_complete", Tracepoint: "block_rq_complete", Groups: []string{"block"}, Record: abi.RecBlockComplete},
	{Program: "block_rq_complete_skipped", Tracepoint: "block_rq_complete", Skipped: "block_rq_complete"},
	{Program: "block_rq_merge", Tracepoint: "block_rq_merge"},
	{Program: "block_rq_requeue", Tracepoint: "block_rq_requeue"},
	{Program: "block_rq_issue", Tracepoint: "block_rq_issue", Groups: []string{"block"}, Record: abi.RecBlockIssue},
	{Program: "block_rq_insert", Tracepoint: "block_rq_insert", Groups: []string{"block"}, Record: abi.RecBlockInsert},
	{Program: "irq_handler_exit", Tracepoint: "irq_handler_exit", Groups: []string{"irq"}, Record: abi.RecIrqExit},
	{Program: "irq_handler_entry", Tracepoint: "irq_handler_entry", Groups: []string{"irq"}, Record: abi.RecIrqEntry},
	{Program: "softirq_exit", Tracepoint: "softirq_exit", Groups: []string{"irq"}, Record: abi.RecSoftirqExit},
	{Program: "softirq_exit_skipped", Tracepoint: "softirq_exit", Skipped: "softirq_exit"},
	{Program: "softirq_entry", Tracepoint: "softirq_entry", Groups: []string{"irq"}, Record: abi.RecSoftirqEntry},
	{Program: "softirq_raise", Tracepoint: "softirq_raise"},
	{Program: "irq_work_entry", Tracepoint: "irq_work_entry"},
	{Program: "hrtimer_expire_exit", Tracepoint: "hrtimer_expire_exit", Groups: []string{"timer"}, Record: abi.RecHrtimerExit},
	{Program: "hrtimer_expire_entry", Tracepoint: "hrtimer_expire_entry", Groups: []string{"timer"}, Record: abi.RecHrtimerEntry},
	{Program: "workqueue_execute_end", Tracepoint: "workqueue_execute_end", Groups: []string{"workqueue"}, Record: abi.RecWorkEnd},
	{Program: "workqueue_execute_end_skipped", Tracepoint: "workqueue_execute_end", Skipped: "workqueue_execute_end"},
	{Program: "workqueue_execute_start", Tracepoint: "workqueue_execute_start", Groups: []string{"workqueue"}, Record: abi.RecWorkStart},
	{Program: "workqueue_queue_work", Tracepoint: "workqueue_queue_work", Groups: []string{"workqueue"}, Record: abi.RecWorkQueue},
}

// HookOf finds that of a program; nil: it has none.
func HookOf(program string) *Hook {
	i := slices.IndexFunc(Hooks, func(h Hook) bool { return h.Program == program })
	if i < 0 {
		return nil
	}
	return &Hooks[i]
}

// RecorderHooks are wanted by the recorder alone. One that is missing leaves
// the rest of its group as it is.
var RecorderHooks = []Hook{
	{Program: "task_rename", Tracepoint: "task_rename"},
	{Program: "timer_expire_exit", Tracepoint: "timer_expire_exit", Groups: []string{"timer"}, Record: abi.RecTimerExit},
	{Program: "timer_expire_entry", Tracepoint: "timer_expire_entry", Groups: []string{"timer"}, Record: abi.RecTimerEntry},
	{Program: "direct_reclaim_end", Tracepoint: "mm_vmscan_direct_reclaim_end", Groups: []string{"reclaim", "memory"}, Record: abi.RecReclaimEnd},
	{Program: "direct_reclaim_begin", Tracepoint: "mm_vmscan_direct_reclaim_begin", Groups: []string{"reclaim", "memory"}, Record: abi.RecReclaimBegin},
	{Program: "memcg_reclaim_end", Tracepoint: "mm_vmscan_memcg_reclaim_end", Groups: []string{"reclaim", "memory"}, Record: abi.RecReclaimEnd},
	{Program: "memcg_reclaim_begin", Tracepoint: "mm_vmscan_memcg_reclaim_begin", Groups: []string{"reclaim", "memory"}, Record: abi.RecReclaimBegin},
	{Program: "compaction_end", Tracepoint: "mm_compaction_end", Groups: []string{"reclaim", "memory"}, Record: abi.RecCompactionEnd},
	{Program: "compaction_begin", Tracepoint: "mm_compaction_begin", Groups: []string{"reclaim", "memory"}, Record: abi.RecCompactionBegin},
	{Program: "page_fault_user", Tracepoint: "page_fault_user", Groups: []string{"memory"}, Record: abi.RecFaultUser},
	{Program: "page_fault_kernel", Tracepoint: "page_fault_kernel", Groups: []string{"memory"}, Record: abi.RecFaultKernel},
	{Program: "contention_end", Tracepoint: "contention_end", Groups: []string{"lock"}, Record: abi.RecLockEnd},
	{Program: "contention_begin", Tracepoint: "contention_begin", Groups: []string{"lock"}, Record: abi.RecLockBegin},
	{Program: "posix_lock_inode", Tracepoint: "posix_lock_inode", Groups: []string{"lock"}, Record: abi.RecFileLock},
	{Program: "flock_lock_inode", Tracepoint: "flock_lock_inode", Groups: []string{"lock"}, Record: abi.RecFileLock},
	{Program: "cpu_idle", Tracepoint: "cpu_idle", Groups: []string{"power"}, Record: abi.RecCpuIdle},
	{Program: "cpu_frequency", Tracepoint: "cpu_frequency", Groups: []string{"power"}, Record: abi.RecCpuFrequency},
	{Program: "net_dev_queue", Tracepoint: "net_dev_queue", Groups: []string{"net"}, Record: abi.RecNetQueue},
	{Program: "netif_receive_skb", Tracepoint: "netif_receive_skb", Groups: []string{"net"}, Record: abi.RecNetReceive},
	{Program: "napi_poll", Tracepoint: "napi_poll", Groups: []string{"net"}, Record: abi.RecNapiPoll},
	{Program: "unthrottle_cfs_rq", Tracepoint: "unthrottle_cfs_rq", Groups: []string{"throttle"}, Record: abi.RecUnthrottle, Function: true},
	{Program: "throttle_cfs_rq", Tracepoint: "throttle_cfs_rq", Groups: []string{"throttle"}, Record: abi.RecThrottle, Function: true},
	{Program: WaitStacks, Tracepoint: "sched_switch", Groups: []string{"wait"}, Record: abi.RecWait, Part: true},
	{Program: RunStacks, Tracepoint: "hrtimer_expire_exit", Groups: []string{"run"}, Record: abi.RecRun, Part: true, Variable: "__irq_regs"},
	{Program: "sample", Tracepoint: "cpu_clock", Groups: []string{"sample"}, Record: abi.RecSample, Clock: true},
	{Program: "kvm_exit", Tracepoint: "kvm_exit", Groups: []string{"kvm"}, Record: abi.RecKvmExit, Module: "kvm", First: "kvm_vcpu"},
	{Program: "kvm_entry", Tracepoint: "kvm_entry", Groups: []string{"kvm"}, Record: abi.RecKvmEntry, Module: "kvm", First: "kvm_vcpu"},
}

// WaitStacks is the part of sched_switch that takes stacks of long waits. The trackers wakeup
// and offcpu know what a long wait is: without one of them, there are none.
const WaitStacks = "wait_stacks"

// RunStacks is the part of hrtimer_expire_exit that takes stacks of tasks that have had their
// CPU for long. RunHooks are what it needs: since when is known from switches.
const RunStacks = "run_stacks"

// RunHooks are the programs that RunStacks needs.
var RunHooks = []string{"sched_switch", "hrtimer_expire_exit"}

// NameHooks are the programs that keep the names of threads, which the records of
// group sched go without.
var NameHooks = []string{"task_rename", "sched_process_exit", "sched_process_exec", "sched_process_fork"}

// Groups are the names that recorder.events may hold. What memory has includes
// all of reclaim.
var Groups = []string{
	"sched", "irq", "timer", "block", "workqueue", "process", "syscall",
	"reclaim", "memory", "lock", "power", "net", "throttle", "kvm", "wait", "run", "sample",
}

// Recorded is the knob of a group whose hooks trackers have, too; nil: its
// programs do nothing but record.
func Recorded(group string, v *bpf.TailcamVariableSpecs) *ebpf.VariableSpec {
	return map[string]*ebpf.VariableSpec{
		"sched": v.RecordSched, "irq": v.RecordIrq, "timer": v.RecordTimer, "block": v.RecordBlock,
		"workqueue": v.RecordWorkqueue, "process": v.RecordProcess, "syscall": v.RecordSyscall,
		"wait": v.RecordWait, "run": v.RecordRun,
	}[group]
}
