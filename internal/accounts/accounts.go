// Package accounts says what the accounts of activities hold, by group, and which
// programs of bpf/activity.bpf.c fill them: which of them this kernel can have, what is
// to be attached, and what each group costs here.
package accounts

import (
	"slices"
	"strings"

	"github.com/tailcam/tailcam/bpf/abi"
)

// The groups of activities.groups. Only those that are on have programs in the kernel.
const (
	Scheduler  = "scheduler" // always on
	Block      = "block"
	PageCache  = "pagecache"
	Network    = "network"
	Memory     = "memory"
	Workqueues = "workqueues"
	Locks      = "locks"
	Syscalls   = "syscalls"
	Interrupts = "interrupts"
	Hardware   = "hardware"
)

// Names are the groups, in the order in which they are listed.
func Names() []string {
	return []string{Scheduler, Block, PageCache, Network, Memory, Workqueues, Locks, Interrupts, Syscalls, Hardware}
}

// Default are the groups that are on unless others are asked for: not those that run at
// every system call or interrupt of the machine, or wherever CPUs contend for a lock.
func Default() []string {
	return []string{Scheduler, Block, PageCache, Network, Memory, Workqueues}
}

// Bits is a list of groups as struct activity_header has it.
func Bits(groups []string) (bits uint32) {
	for group, bit := range map[string]uint32{
		Scheduler: abi.ActivityGroupScheduler, Block: abi.ActivityGroupBlock, PageCache: abi.ActivityGroupPagecache,
		Network: abi.ActivityGroupNetwork, Memory: abi.ActivityGroupMemory, Workqueues: abi.ActivityGroupWorkqueues,
		Syscalls: abi.ActivityGroupSyscalls, Hardware: abi.ActivityGroupHardware, Interrupts: abi.ActivityGroupInterrupts,
		Locks: abi.ActivityGroupLocks,
	} {
		if slices.Contains(groups, group) {
			bits |= bit
		}
	}
	return bits
}

// Units of values.
const (
	nanoseconds = "ns"
	pages       = "pages"
	bytes       = "bytes"
	number      = "count"
)

// Value is one value of an account.
type Value struct {
	Name  string `json:"name"` // the same in C, Go, Python and JSON
	Group string `json:"group"`
	Unit  string `json:"unit"` // ns, bytes, pages or count
	// Of is "process" for values that are not of a token: what is known of its process alone.
	Of string `json:"of,omitempty"`
	// Another group that has to be on, too.
	Also string `json:"also,omitempty"`
	// Hooks that fill it; all of them are needed.
	Hooks     []string `json:"hooks"`
	Available bool     `json:"available"`
	Reason    string   `json:"reason,omitempty"` // why not

	index    int
	programs []string
}

// Index is the value's place in struct activity_account, enum activity_value; -1: it has none.
func (v *Value) Index() int { return v.index }

// switches are programs of the group scheduler.
var switches = []string{"activity_switch"}

// values lists what accounts hold, in the order of enum activity_value.
var values = []Value{
	of(abi.ActivityCpuNs, "cpu_ns", Scheduler, switches...),
	of(abi.ActivityCpuKernelNs, "cpu_kernel_ns", Syscalls, "sys_enter", "sys_exit", "activity_switch"),
	of(abi.ActivityRunnableNs, "runnable_ns", Scheduler, "activity_switch", "activity_waking"),
	of(abi.ActivityRunnablePreemptedNs, "runnable_preempted_ns", Scheduler, switches...),
	of(abi.ActivityRunnableWokenNs, "runnable_woken_ns", Scheduler, "activity_switch", "activity_waking"),
	of(abi.ActivityRunnableThrottledNs, "runnable_throttled_ns", Scheduler, switches...),
	of(abi.ActivityBlockedNs, "blocked_ns", Scheduler, "activity_switch", "activity_waking"),
	of(abi.ActivityBlockedDiskNs, "blocked_disk_ns", Scheduler, switches...),
	of(abi.ActivityBlockedLockNs, "blocked_lock_ns", Scheduler, switches...),
	of(abi.ActivityBlockedNetworkNs, "blocked_network_ns", Scheduler, switches...),
	of(abi.ActivityBlockedTaskNs, "blocked_task_ns", Scheduler, "activity_switch", "activity_waking"),
	of(abi.ActivityBlockedTimerNs, "blocked_timer_ns", Scheduler, "activity_switch", "activity_waking"),
	of(abi.ActivityBlockedFaultNs, "blocked_fault_ns", Scheduler, switches...),
	of(abi.ActivityBlockedReclaimNs, "blocked_reclaim_ns", Scheduler, switches...),
	of(abi.ActivityBlockedWorkNs, "blocked_work_ns", Scheduler, "activity_switch", "activity_waking"),
	of(abi.ActivityBlockedOtherNs, "blocked_other_ns", Scheduler, switches...),
	of(abi.ActivitySwitches, "switches", Scheduler, switches...),
	of(abi.ActivityPreemptions, "preemptions", Scheduler, switches...),
	of(abi.ActivityWakeups, "wakeups", Scheduler, "activity_waking"),
	of(abi.ActivitySyscalls, "syscalls", Syscalls, "sys_enter", "sys_exit"),
	of(abi.ActivitySyscallNs, "syscall_ns", Syscalls, "sys_enter", "sys_exit"),
	of(abi.ActivityFaultsMinor, "faults_minor", Memory, "fault_minor"),
	of(abi.ActivityFaultsMajor, "faults_major", Memory, "fault_major"),
	of(abi.ActivityFaultNs, "fault_ns", Memory, "page_fault_user", "page_fault_kernel", "fault_minor", "fault_major"),
	of(abi.ActivityCacheHits, "cache_hits", PageCache,
		"mm_filemap_get_pages", "mm_filemap_fault", "mm_filemap_map_pages", "mm_filemap_add_to_page_cache"),
	of(abi.ActivityCacheMisses, "cache_misses", PageCache, "mm_filemap_add_to_page_cache", "writeback_dirty_folio"),
	of(abi.ActivityBlockRequests, "block_requests", Block, requests...),
	of(abi.ActivityBlockBytes, "block_bytes", Block, requests...),
	of(abi.ActivityBlockQueueNs, "block_queue_ns", Block, requests...),
	of(abi.ActivityBlockDeviceNs, "block_device_ns", Block, requests...),
	of(abi.ActivityTcpBytesSent, "tcp_bytes_sent", Network, "sock_send_length"),
	of(abi.ActivityTcpBytesReceived, "tcp_bytes_received", Network, "sock_recv_length"),
	of(abi.ActivityTcpSegments, "tcp_segments", Network, "sock_send_length", "sock_recv_length"),
	of(abi.ActivityTcpRetransmits, "tcp_retransmits", Network, "tcp_retransmit_skb", "sock_send_length"),
	of(abi.ActivityNetworkNs, "network_ns", Network, "sock_send_length", "sock_recv_length", "activity_switch").
		with(Syscalls, "sys_enter"),
	of(abi.ActivityMemoryBytes, "memory_bytes", Memory, "mm_page_alloc"),
	of(abi.ActivityWorkItems, "work_items", Workqueues, works...),
	of(abi.ActivityWorkNs, "work_ns", Workqueues, works...),
	of(abi.ActivityWorkBlockedNs, "work_blocked_ns", Workqueues, works...),
	of(abi.ActivityWritebackBytes, "writeback_bytes", Block, writeback...),
	of(abi.ActivityEvictedPages, "evicted_pages", PageCache, evictions...),
	of(abi.ActivityEvictsPages, "evicts_pages", PageCache, evictions...),
	of(abi.ActivityCycles, "cycles", Hardware, switches...),
	of(abi.ActivityInstructions, "instructions", Hardware, switches...),
	of(abi.ActivityCacheMissesHw, "cache_misses_hw", Hardware, switches...),
	of(abi.ActivityRunnableStolenNs, "runnable_stolen_ns", Scheduler, switches...),
	of(abi.ActivityBlockedKernelLockNs, "blocked_kernel_lock_ns", Locks, append(switches, contention...)...),
	of(abi.ActivityKernelLocks, "kernel_locks", Locks, contention...),
	of(abi.ActivityKernelLockMutexNs, "kernel_lock_mutex_ns", Locks, contention...),
	of(abi.ActivityKernelLockRwsemNs, "kernel_lock_rwsem_ns", Locks, contention...),
	of(abi.ActivityKernelLockSpinNs, "kernel_lock_spin_ns", Locks, contention...),
	of(abi.ActivityKernelLockRtmutexNs, "kernel_lock_rtmutex_ns", Locks, contention...),
}

// ofProcess lists what beside values is known of a process alone.
var ofProcess = []Value{
	of(-1, "late", Scheduler, switches...).process(),
	of(-1, "machine_ns", Interrupts, "irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit").process(),
}

func (v Value) process() Value {
	v.Of = "process"
	return v
}

var (
	requests  = []string{"block_bio_queue", "block_split", "block_rq_issue", "block_rq_complete"}
	writeback = slices.Concat(requests,
		[]string{"writeback_dirty_folio", "writeback_single_inode_start", "writeback_single_inode"})
	evictions  = []string{"mm_filemap_delete_from_page_cache", "mm_filemap_add_to_page_cache"}
	contention = []string{"contention_begin", "contention_end"}
	works      = []string{"workqueue_queue_work", "workqueue_execute_start", "workqueue_execute_end", "activity_switch"}
)

func of(index int, name, group string, programs ...string) Value {
	v := Value{Name: name, Group: group, Unit: number, index: index, programs: programs}
	switch {
	case strings.HasSuffix(name, "_ns"):
		v.Unit = nanoseconds
	case strings.Contains(name, "bytes"):
		v.Unit = bytes
	case strings.HasSuffix(name, "_pages"), name == "cache_hits", name == "cache_misses":
		v.Unit = pages
	}
	for _, p := range programs {
		v.Hooks = append(v.Hooks, hookOf(p).Site())
	}
	return v
}

// with says which hooks of another group the value needs.
func (v Value) with(group string, programs ...string) Value {
	v.Also = group
	v.programs = slices.Concat(v.programs, programs)
	for _, p := range programs {
		v.Hooks = append(v.Hooks, hookOf(p).Site())
	}
	return v
}

// Values lists what accounts hold, in the order of enum activity_value, and whether this
// kernel has the hooks. It needs no privileges.
func Values() ([]Value, error) {
	return available(values)
}

// available says of values whether this kernel has the hooks.
func available(all []Value) ([]Value, error) {
	absent, err := Missing(Names())
	if err != nil {
		return nil, err
	}
	list := slices.Clone(all)
	for i := range list {
		v := &list[i]
		if v.Group == Hardware {
			v.Reason = noCounters()
		}
		for _, p := range v.programs {
			if err := absent[p]; err != nil && v.Reason == "" {
				v.Reason = err.Error()
			}
		}
		v.Available = v.Reason == ""
	}
	return list, nil
}
