/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side is told (knobs, set before load; floors and rules, set
 * while it runs) and what it keeps (maps).
 */
#ifndef TAILCAM_STATE_H
#define TAILCAM_STATE_H

#include "kernel.h"

#include "abi/counters.h"
#include "abi/histogram.h"
#include "abi/message.h"
#include "abi/outlier.h"
#include "abi/pair.h"
#include "abi/record.h"
#include "abi/recorder.h"
#include "abi/rule.h"
#include "abi/table.h"
#include "abi/tracker.h"
#include "task.h"

/* ------------------------------------------------- knobs, fixed before load */

/* Parts that no rule needs are removed by the verifier. */
const volatile bool track_wakeup;
const volatile bool track_offcpu;
const volatile bool track_syscall;
const volatile bool track_block;
const volatile bool track_irq;
const volatile bool track_softirq;
const volatile bool track_softirq_raise; /* a rule wants how long softirqs wait to run */
const volatile bool waker_stacks_always; /* a wakeup rule wants them: taken at every waking */
const volatile bool waker_stacks_slow;	 /* only an offcpu rule does: taken past its floor */
const volatile bool user_stacks_later;	 /* a wakeup or offcpu rule wants user stacks */
const volatile bool timeouts;		 /* a rule has one */
const volatile bool progress_stacks;	 /* a syscall rule wants them */

/* The recorder: its backend, how many records a part of a ring holds (less one, and as a power of two), its groups. */
const volatile bool record_mmap;
const volatile u32 record_mask;
const volatile u32 record_shift;
const volatile bool record_sched;
const volatile bool record_irq;
const volatile bool record_timer;
const volatile bool record_block;
const volatile bool record_workqueue;
const volatile bool record_process;
const volatile bool record_syscall;

/* Distributions of every delay; how many of them each CPU has. */
const volatile bool histograms;
const volatile u32 histogram_stride;

/* Buckets of each pending table, less one; a power of two less one. */
const volatile u32 task_mask;
const volatile u32 call_mask;
const volatile u32 request_mask;

/* The kernel hands out tasks by their id (bpf_task_from_pid). */
const volatile bool task_kfuncs;

/* CPUs that the trackers irq and softirq have slots for. */
const volatile u32 interrupt_cpus;

/* Rate limit of each rule's outliers: one each …, after a burst of room / each; 0: none. */
const volatile u64 outlier_each_ns;
const volatile u64 outlier_room_ns;

/* The daemon's own process: what it does is never an outlier. */
const volatile u32 self_pid;

/* Not x86: releasing a slot needs a barrier. */
const volatile bool weakly_ordered;

/* ------------------------------------------- live, written by the daemon */

#define NSEC_PER_SEC 1000000000ULL

/*
 * The floor of each key class: the smallest threshold that any rule could
 * apply there. The hot path compares with it and with nothing else.
 */
volatile u64 floor_wakeup[FLOOR_THREADS];		/* by is-kernel-thread */
volatile u64 floor_offcpu[FLOOR_THREADS][FLOOR_STATES]; /* by is-kernel-thread, number of the state bit */
volatile u64 floor_syscall[SYSCALLS];
volatile u64 floor_block[FLOOR_OPS]; /* by number of the op bit */
volatile u64 floor_irq[IRQ_CLASSES];
volatile u64 floor_softirq[PHASES][SOFTIRQS]; /* by phase, vector */

/* The same for timeouts; pending work that is younger is not looked at. */
volatile u64 timeout_wakeup;
volatile u64 timeout_offcpu[TIMEOUT_STATES]; /* by number of the state bit; the last is unused */
volatile u64 timeout_syscall[SYSCALLS];
volatile u64 timeout_block[FLOOR_OPS];
volatile u64 timeout_irq[IRQ_CLASSES];
volatile u64 timeout_softirq[PHASES][SOFTIRQS];
volatile u64 timeout_interrupts; /* the least of both */

/* The least timeout of each pending table: what begins now cannot be due before. */
volatile u64 timeout_least[TIMEOUT_TABLES];

/* A wakeup rule that is not paused wants stacks of wakers. */
volatile u32 waker_stacks_wanted;

/* Bytes of the outliers' ring buffer that each owner has for itself, and that all have in common. */
volatile u64 ring_share;
volatile u64 ring_common;

/* Two generations of rules; the low bit of generation selects the live one. */
volatile u32 generation;
volatile struct rule_table tables[2];
volatile struct histogram_table histogram_tables[2];

/* ------------------------------------------------ live, written down here */

volatile struct recorder_state recorder;

/* -------------------------------------------------------------------- maps */

/* A task that left the CPU: asleep, runnable again, or preempted. */
struct task_slot {
	u64 off_ns;  /* when it blocked; 0: it did not */
	u64 wake_ns; /* since when it is runnable; 0: asleep */
	u32 state;   /* it sleeps in */
	u32 flags;   /* enum outlier_flag, SLOT_MOVED */
	u32 waker_tid;
	u32 waker_pid;
	u64 task; /* struct task_struct *, as a number */
	u16 entry_cpu;
	u16 off_cpu;
	u16 waker_cpu;
	u16 waker_context; /* WAKER_* */
	char waker_comm[TASK_COMM_LEN];
	/* Second cache line, only when it moved while runnable. */
	u64 here_ns; /* since when it waits on here_cpu */
	u64 best_ns; /* longest wait on one CPU before that */
	u32 here_cpu;
	u32 best_cpu;
	u64 _pad[5];
	/* Third cache line, only when it waits for too long. */
	struct deadline off_deadline;
	struct deadline wake_deadline;
};

_Static_assert(__builtin_offsetof(struct task_slot, here_ns) == 64, "what every wait needs fills one cache line");
_Static_assert(sizeof(struct task_slot) == 192, "three cache lines");

/* A thread inside a tracked system call. */
struct call_slot {
	u64 start_ns;
	u64 task; /* struct task_struct *, as a number */
	u32 nr;
	u32 cpu;
	struct deadline deadline;
	u64 _pad;
};

/* A block request between insert or issue and its completion. */
struct request_slot {
	u64 insert_ns; /* 0: never seen in a queue */
	u64 issue_ns;  /* 0: not yet */
	u64 cgroup_id;
	u32 tid, pid, uid, cpu;
	u32 requeues;
	u32 requeued; /* given back, waits to be issued again */
	u32 kthread;
	u32 bytes; /* as issued: a request shrinks when it completes in parts */
	char comm[TASK_COMM_LEN];
	u64 sector; /* as issued */
	struct deadline deadline;
	u32 cmd_flags;
	u32 _pad1;
	u64 _pad2;
};

#define ARRAY_MAP(map, value_type)                 \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1);            \
		__type(key, u32);                  \
		__type(value, value_type);         \
	} map SEC(".maps")

/* Pending tables: keys in buckets, values at bucket * 8 + position. Sized by tracker. */
ARRAY_MAP(task_keys, struct bucket);
ARRAY_MAP(task_slots, struct task_slot);
ARRAY_MAP(call_keys, struct bucket);
ARRAY_MAP(call_slots, struct call_slot);
ARRAY_MAP(request_keys, struct bucket);
ARRAY_MAP(request_slots, struct request_slot);

/* One element a possible CPU; written by that CPU, read by the daemon. */
ARRAY_MAP(cpus, struct cpu_state);

/* Two generations of each; written by the daemon before it flips generation. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* thresholds change while they are in use */
	__uint(max_entries, 2 * MAX_RULES);
	__type(key, u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* thresholds change while they are in use */
	__uint(max_entries, 2 * MAX_OVERRIDES);
	__type(key, u32);
	__type(value, struct override);
} overrides SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_GLOBS);
	__type(key, u32);
	__type(value, struct glob);
} globs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_RULES);
	__type(key, u32);
	__type(value, struct histogram_rule);
} histogram_rules SEC(".maps");

/* Each CPU's histograms one after the other; written by that CPU, read by the daemon. Sized by tracker. */
ARRAY_MAP(distributions, struct histogram);

/* Keys of classes, each at its histogram's number; claimed here, freed by the daemon. Sized by tracker. */
ARRAY_MAP(class_keys, struct bucket);

/* What each rule has done, by rule.id: it goes on when rules are replaced. Written here, read by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* the daemon looks for storms ten times a second */
	__uint(max_entries, MAX_RULES);
	__type(key, u32);
	__type(value, struct rule_state);
} rule_states SEC(".maps");

/* Members of pid, uid and syscall lists; written by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct set_key);
	__type(value, u8);
} sets SEC(".maps");

/* Which cgroup and device conditions a cgroup or device meets; taught by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct verdict_key);
	__type(value, u64);
} verdicts SEC(".maps");

/* Outliers on their way to the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} outliers SEC(".maps");

/* Who has how much of it in flight, by owner; see struct ring_use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RING_OWNERS);
	__type(key, u32);
	__type(value, struct ring_use);
} ring_uses SEC(".maps");

/* One element a possible CPU; written by that CPU, read by the daemon through its mapping. */
ARRAY_MAP(record_rings, struct record_ring);

/*
 * The recorder's rings, backend mmap: for each CPU RING_PARTS places of one
 * part. Written here, read by the daemon through its mapping.
 */
ARRAY_MAP(records, struct record);

/* The same, backend perf: two banks of one perf ring a CPU; filled in by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} bank0 SEC(".maps"), bank1 SEC(".maps");

#include "pair_state.h"
#include "span_state.h"

static __always_inline struct cpu_state *this_cpu(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

#include "limit.h"

#endif
