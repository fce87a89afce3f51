/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The binary interface between the kernel side and Go. Everything that crosses
 * is laid out here and nowhere else. bpf2go turns these types into Go types
 * (package bpf); rules of the layout: naturally aligned, no implicit padding,
 * nanoseconds of CLOCK_MONOTONIC, little endian.
 */
#ifndef TAILCAM_ABI_H
#define TAILCAM_ABI_H

#define DISK_NAME_LEN 32
#define HANDLER_NAME_LEN 32

#include "abi_record.h"
#include "span_abi.h"

/* Trackers, in the order of DESIGN.md. Also the index of floors, counters. */
enum tracker_kind {
	TRACK_WAKEUP = 0,
	TRACK_OFFCPU = 1,
	TRACK_SYSCALL = 2,
	TRACK_BLOCK = 3,
	TRACK_IRQ = 4,
	TRACK_SOFTIRQ = 5,
	TRACK_PAIR = 6,
	TRACK_CHAIN = 7,
	TRACK_SPAN = 8,
	TRACKERS = 9,
};

/* Pending tables. */
enum table_kind {
	TABLE_TASKS = 0, /* wakeup, offcpu */
	TABLE_CALLS = 1,
	TABLE_REQUESTS = 2,
	TABLE_PAIRS = 3,
	TABLE_SPANS = 4,
	TABLES = 5,
};

#define SEGMENTS 4 /* of one table: its first, and what it has grown by */

/* How a pending table has grown; written by user space, but for wanted. */
struct growth {
	__u32 segments;		/* beside the first */
	__u32 wanted;		/* the table is crowded, and user space knows */
	__u32 mask[SEGMENTS];	/* buckets less one; of the first: see task_mask and its like */
	__u32 chunks[SEGMENTS]; /* that the tick looks at */
};

/* ----------------------------------------------------------------- outlier */

enum outlier_cause {
	CAUSE_THRESHOLD = 0,
	CAUSE_TIMEOUT = 1,	 /* it is still pending */
	CAUSE_AFTER_TIMEOUT = 2, /* the exit of what has timed out before */
};

/* outlier.flags */
enum outlier_flag {
	OUTLIER_PREEMPTED = 1 << 0, /* wakeup: the wait began with a preemption */
	OUTLIER_KTHREAD = 1 << 1,
	OUTLIER_SNAPSHOT = 1 << 2,   /* the limiter lets this one have a snapshot */
	OUTLIER_FROZE = 1 << 3,	     /* and this one switched the recorder's bank */
	OUTLIER_UNDECIDED = 1 << 4,  /* the daemon must decide whether the rule wants it */
	OUTLIER_NEW = 1 << 5,	     /* wakeup: first run of a new task */
	OUTLIER_USER_LATER = 1 << 6, /* a struct user_stack may follow */
	OUTLIER_NO_STACK = 1 << 7,   /* timeout: this kernel gives no stack here; the daemon must take it */
	OUTLIER_RUNNING = 1 << 8,    /* timeout: the task was on a CPU then */
};

#define MAX_STACK 64
#define TOP_RAN 16	/* power of two */
#define EXTRA_BYTES 408 /* the largest of them: struct chain */

/* Who ran on a CPU from start_ns on, until the next segment's start. */
struct ran {
	__u64 start_ns;
	__u32 tid;
	__u32 pid;
	char comm[TASK_COMM_LEN];
};

/* How long a task ran on a CPU within a wait. */
struct ran_for {
	__u64 ns;
	__u32 tid;
	__u32 pid;
	char comm[TASK_COMM_LEN];
};

/* A rule fired for one key. One fixed size: simple to verify, simple to decode. */
struct outlier {
	__u16 type; /* OUTLIER_TYPE */
	__u8 tracker;
	__u8 cause;
	__u32 flags;
	__u32 rule;	  /* index in the rule table */
	__u32 generation; /* of the rule table */
	__u64 start_ns;	  /* the entry */
	__u64 time_ns;	  /* the exit */
	__u64 threshold_ns;
	__u64 suppressed; /* snapshots of this rule refused by the limiter since the last one */

	__u32 tid; /* the task that was slow; block: that asked for the request */
	__u32 pid;
	__u32 uid;
	__u32 cpu; /* of the exit */
	__u64 cgroup_id;
	char comm[TASK_COMM_LEN];

	__u64 runnable_ns; /* wakeup, offcpu: part of the delay spent waiting for a CPU */
	__u32 wait_cpu;	   /* wakeup: where it waited longest */
	__u32 state;	   /* offcpu: kernel task state it slept in */
	__u32 waker_tid;
	__u32 waker_pid;
	char waker_comm[TASK_COMM_LEN];
	__u32 waker_cpu;
	__u32 waker_frames;

	__s32 syscall; /* offcpu: the call it slept in; -1: none */
	__u32 dev;
	__s64 ret; /* syscall: its return value; block: blk_status_t */
	__u64 sector;
	__u64 queue_ns; /* block: before issue */
	__u32 bytes;
	__u32 cmd_flags;
	__u32 requeues;
	__u32 entry_cpu;
	char disk[DISK_NAME_LEN];

	__u32 undecided; /* enum match_field bits that the kernel could not decide */
	__u16 kernel_frames;
	__u16 user_frames;
	__u32 _pad;
	__u32 waker_context;	      /* WAKER_*: what ran on top of the waker's task */
	struct ran_for ran[TOP_RAN];  /* who ran instead; in no order, those with ns 0 are empty */
	__u64 user_sp, user_fp;	      /* timeout: stack and frame pointer in user space; 0: none */
	__u64 extra[EXTRA_BYTES / 8]; /* what only this tracker knows: a struct of its own */
	__u64 kernel[MAX_STACK];
	__u64 user[MAX_STACK];
	__u64 waker[MAX_STACK]; /* kernel stack of the waker */
};

/* outlier.extra of irq and softirq. */
struct irq_extra {
	__u32 irq;
	__u32 vector; /* softirq */
	__u32 phase;  /* softirq: PHASE_* */
	__u32 _pad;
	char name[HANDLER_NAME_LEN]; /* irq: of the handler */
};

#define PHASE_RAISE 0 /* raised until it runs */
#define PHASE_RUN 1   /* its run */
#define SOFTIRQS 16   /* power of two; kernels have 10 */
/* ------------------------------------------------------------------ chains */

#define CHAIN_STAGES 12
#define CHAIN_AT_MASK 0xffffffffffULL
#define CHAIN_NO_IRQ 0xffffffff

/* Where a chain may begin: chain.from. An irq whose handler runs a timer is both. */
enum chain_from {
	CHAIN_FROM_IRQ = 1 << 0,
	CHAIN_FROM_HRTIMER = 1 << 1,
	CHAIN_FROM_SOFTIRQ = 1 << 2,
};

/* Where a rule may end one: numbers of floors, and bits of conditions.ends. */
enum chain_end {
	CHAIN_END_RUN = 0,
	CHAIN_END_USER = 1,
	CHAIN_END_BLOCK = 2,
};

/* What goes on from a stage's time until the next stage's. */
enum chain_kind {
	CHAIN_IRQ = 1,
	CHAIN_TIMER = 2,
	CHAIN_RAISE = 3, /* a softirq waits to run */
	CHAIN_SOFTIRQ = 4,
	CHAIN_WAKEUP = 5, /* a task waits for a CPU */
	CHAIN_RUN = 6,	  /* it runs */
	CHAIN_USER = 7,	  /* it runs, and has returned to user space once */
	CHAIN_PREEMPTED = 8,
	CHAIN_LOCK = 9, /* real-time kernels: it sleeps for a lock */
};

struct chain_stage {
	__u64 at;  /* kind above bit 56, CPU above bit 40, nanoseconds since the origin below */
	__u32 id;  /* irq; vector; thread id */
	__u32 pid; /* of a task */
	char name[TASK_COMM_LEN];
};

/* outlier.extra of chain: the way so far. */
struct chain {
	__u64 origin_ns; /* 0: none */
	__u8 from;	 /* CHAIN_FROM_* */
	__u8 stages;
	__u8 cut; /* something was left out: a branch, or a stage at its end */
	__u8 end; /* CHAIN_END_* */
	__u16 tasks;
	__u16 vectors; /* bits of the softirqs that it went through */
	__u32 irq;     /* that it began with, or CHAIN_NO_IRQ */
	__u32 _pad;
	struct chain_stage stage[CHAIN_STAGES];
};

/*
 * The user stack of an outlier at sched_switch. The kernel unwinds the user
 * stack of the current task only, so it is taken when the task itself passes
 * its next hook. It belongs to the outliers with the same tid and time_ns.
 */
struct user_stack {
	__u16 type; /* USER_STACK_TYPE */
	__u16 frames;
	__u32 tid;
	__u64 time_ns; /* outlier.time_ns */
	__u64 user[MAX_STACK];
};

/*
 * Where a slow system call was each time it left its CPU. Comes before the
 * outlier with the same tid and start_ns.
 */
#define PROGRESS_STACKS 8 /* power of two */
#define PROGRESS_FRAMES 32

struct progress_at {
	__u64 age_ns; /* since the entry */
	__u32 frames;
	__u32 state; /* it left in */
	__u64 kernel[PROGRESS_FRAMES];
};

struct progress {
	__u16 type; /* PROGRESS_TYPE */
	__u16 _pad;
	__u32 tid;
	__u64 start_ns;
	__u64 count; /* switches; the first and the last PROGRESS_STACKS - 1 are kept */
	struct progress_at at[PROGRESS_STACKS];
};

/* What the program stack_of_task tells of one task. */
struct task_stack {
	__u64 frames;
	__u64 kernel[MAX_STACK];
};

/* A pending table is crowded. */
struct grow_message {
	__u16 type; /* GROW_TYPE */
	__u16 table;
	__u32 _pad;
};

/* Who really woke a task: the current one, or an interrupt on top of it (kind in bits 14 and 15, number below). */
#define WAKER_TASK 0
#define WAKER_SOFTIRQ (1 << 14) /* | vector */
#define WAKER_IRQ (2 << 14)	/* | irq */
#define WAKER_HRTIMER (3 << 14)

#define OUTLIER_TYPE 0x7443
#define USER_STACK_TYPE 0x7444
#define PROGRESS_TYPE 0x7445
#define GROW_TYPE 0x7447
#define QUESTION_TYPE 0x7446

/* Asks the daemon for a verdict: a rule with a histogram depends on it. */
struct question {
	__u16 type; /* QUESTION_TYPE */
	__u16 kind; /* enum verdict_kind */
	__u32 generation;
	__u64 id;
};

/* ------------------------------------------------------------------- rules */

#define MAX_RULES 64	  /* in one generation */
#define MAX_OVERRIDES 256 /* all rules together */
#define MAX_GLOBS 512	  /* all comm globs together */
#define SYSCALLS 512	  /* numbers at or past this are not tracked */

/* match.fields: which conditions are set; also outlier.undecided. */
enum match_field {
	MATCH_COMM = 1 << 0,
	MATCH_NOT_COMM = 1 << 1,
	MATCH_PID = 1 << 2,
	MATCH_NOT_PID = 1 << 3,
	MATCH_UID = 1 << 4,
	MATCH_NOT_UID = 1 << 5,
	MATCH_CGROUP = 1 << 6,
	MATCH_NOT_CGROUP = 1 << 7,
	MATCH_SYSCALL = 1 << 8,
	MATCH_NOT_SYSCALL = 1 << 9,
	MATCH_DEVICE = 1 << 10,
	MATCH_NOT_DEVICE = 1 << 11,
	MATCH_OP = 1 << 12,
	MATCH_STATE = 1 << 13,
	MATCH_THREAD = 1 << 14,
	MATCH_PREEMPTED = 1 << 15,
	MATCH_IRQ = 1 << 16,
	MATCH_NOT_IRQ = 1 << 17,
	MATCH_HANDLER = 1 << 18,
	MATCH_NOT_HANDLER = 1 << 19,
	MATCH_VECTOR = 1 << 20,
	MATCH_PHASE = 1 << 21,
	MATCH_CPU = 1 << 22,
	MATCH_NOT_CPU = 1 << 23,
	MATCH_FROM = 1 << 24,
	MATCH_END = 1 << 25,
	MATCH_TID = 1 << 26,
	MATCH_NOT_TID = 1 << 27,
	MATCH_SECTOR = 1 << 28,
	MATCH_KEY = 1 << 29,
	MATCH_NOT_KEY = 1 << 30,
};

enum op_bit {
	OP_READ = 1 << 0,
	OP_WRITE = 1 << 1,
	OP_FLUSH = 1 << 2,
	OP_DISCARD = 1 << 3,
	OP_OTHER = 1 << 4,
};

enum state_bit {
	STATE_INTERRUPTIBLE = 1 << 0,
	STATE_UNINTERRUPTIBLE = 1 << 1,
	STATE_OTHER = 1 << 2, /* stopped, traced, idle kernel threads */
};

enum thread_bit {
	THREAD_USER = 1 << 0,
	THREAD_KERNEL = 1 << 1,
};

/* A half-open range of the glob table. */
struct glob_range {
	__u16 first;
	__u16 count;
};

/* All conditions of one `when`: each that is set must hold. */
struct conditions {
	__u32 fields;
	struct glob_range comm, not_comm;
	__u16 pid_set, not_pid_set; /* numbers in map sets */
	__u16 uid_set, not_uid_set;
	__u16 syscall_set, not_syscall_set;
	__u64 cgroups, not_cgroups; /* bits of verdicts of kind cgroup */
	__u64 devices, not_devices; /* bits of verdicts of kind device */
	__u8 ops, states, threads, preempted;
	__u32 vectors;		      /* bits of softirq vectors */
	__u64 handlers, not_handlers; /* bits of verdicts of kind handler */
	__u16 irq_set, not_irq_set;   /* numbers in map sets */
	__u16 cpu_set, not_cpu_set;
	__u8 phases;
	__u8 from, ends; /* chain */
	__u8 _pad;
	__u16 tid_set, not_tid_set;
	__u64 first_sector, last_sector;
	struct glob_range key, not_key; /* span: in the table of key globs */
};

struct rule {
	__u64 threshold_ns;
	struct conditions when;
	__u16 first_override, overrides;
	__u8 tracker;
	__u8 user_stack;
	__u8 kernel_stack;
	__u8 snapshot;	  /* wants one */
	__u64 every_ns;	  /* limiter: one snapshot each … */
	__u64 allow_ns;	  /* … after a burst: (burst - 1) * every_ns */
	__u64 timeout_ns; /* NEVER: none */
	__u64 repeat_ns;  /* 0: a timeout fires once */
	__u8 progress;	  /* wants stacks of where a call was at each switch */
	__u8 id;	  /* the same in every generation, as long as the rule lives */
	__u8 ratchet;	  /* only what is worse than worst_ns fires */
	__u8 adaptive;	  /* the daemon moves the threshold: see burst.h */
	__u8 paused;	  /* fires nothing */
	__u32 _pad2;
};

struct override {
	__u64 threshold_ns;
	__u64 timeout_ns;
	__u32 histogram; /* its class's number, where the rule's is by override */
	__u32 adaptive;
	struct conditions when;
};

struct glob {
	char pattern[TASK_COMM_LEN];
};

/* Members of a condition's list: pids, uids, system calls, irqs, CPUs. */
struct set_key {
	__u32 set;
	__u32 value;
};

/* What the daemon found out about a cgroup, a device, or the name of an interrupt handler (its id: a hash). */
enum verdict_kind {
	VERDICT_CGROUP = 0,
	VERDICT_DEVICE = 1,
	VERDICT_HANDLER = 2,
};

struct verdict_key {
	__u64 id;
	__u32 kind;
	__u32 generation;
};

/* Where the rules of one generation stand in the rule table. */
struct rule_table {
	__u32 first[TRACKERS];
	__u32 count[TRACKERS];
};

/* What a rule has done; written with atomics by the kernel side only. */
struct rule_state {
	__u64 limit_ns; /* theoretical arrival time of the limiter (GCRA) */
	__u64 outliers;
	__u64 worst_ns;
	__u64 record_ns;       /* ratchet: only what is worse fires */
	__u64 suppressed;      /* snapshots refused by the limiter, all time */
	__u64 suppressed_last; /* the same at the last snapshot */
	__u64 ring_full;       /* outliers lost: ring buffer full */
	__u64 undecided;       /* handed to the daemon to decide */
	__u64 burst_full;      /* adaptive: when the bucket of firings is empty again (burst.h) */
	__u64 burst_level;     /* average of the delays past the threshold since then */
	__u64 held_back;       /* delays past the threshold that did not fire for it */
};

/* -------------------------------------------------------------- histograms */

/*
 * Below 8 ns each value has a bucket; from there on each power of two has 8.
 * tracker/histogram says which (Index, Bounds).
 */
#define HISTOGRAM_BUCKETS 496

/* One CPU's part of a histogram. The number of values is the sum of the buckets. */
struct histogram {
	__u64 bucket[HISTOGRAM_BUCKETS];
	__u64 sum;
	__u64 max;
	__u64 not_min;	 /* the complement of the least value; 0: empty */
	__u64 undecided; /* of a rule: delays that it may have wanted, but the daemon must say first */
	__u64 _pad[12];
};

/* What the classes of a rule's histogram are. */
enum histogram_by {
	BY_NOTHING = 0,
	BY_DEVICE = 1,
	BY_SYSCALL = 2,
	BY_CGROUP = 3,
	BY_OVERRIDE = 4,
};

/* A rule with a histogram. Conditions that cost little to decide are in here; 0: it has none of the kind. */
struct histogram_rule {
	__u32 rule;	  /* place in the rule table */
	__u32 own;	  /* number of the histogram of what is in no class */
	__u32 classes;	  /* number of the first class's histogram; a multiple of 16 */
	__u32 class_mask; /* buckets of class keys, less one */
	__u32 rest;	  /* conditions that only match() decides */
	__u8 by;
	__u8 threads, states, ops;
	__u8 preempted;	 /* bit 0: waits that did not begin with a preemption; bit 1: that did */
	__u8 some_calls; /* look into calls */
	__u8 no_call;	 /* some_calls: also what is in no call at all */
	__u8 _pad[5];
	__u64 calls[SYSCALLS / 64];
};

/* What rules with histograms must know of an event. */
enum histogram_need {
	NEED_TASK = 1 << 0, /* comm, user */
	NEED_CGROUP = 1 << 1,
	NEED_CALL = 1 << 2, /* that the task sleeps in */
	NEED_DEVICE = 1 << 3,
	NEED_HANDLER = 1 << 4, /* name of an interrupt handler */
};

/* Where those of one generation stand. */
struct histogram_table {
	__u32 first[TRACKERS];
	__u32 count[TRACKERS];
	__u32 needs[TRACKERS];
};

/* Argument of the program histogram_bucket. */
struct bucket_of {
	__u64 value;
};

/* Argument of the program ratchet: a delay to claim a record with, or 0 to begin anew. */
struct ratchet_call {
	__u64 delay_ns;
	__u32 id; /* of the rule */
	__u32 _pad;
};

/* Argument of the program forget_thread. */
struct forget {
	__u32 tid;
};

/* ------------------------------------------------------------------- tick */

#define CHUNK_BUCKETS 512 /* looked at together */
#define MAX_CHUNKS 256	  /* of one segment of a table */

/* A part of a pending table. */
struct chunk {
	__u64 due_ns; /* nothing in it can be due before */
	__u32 generation;
	__u32 _pad;
};

/* The tick, and what it has done; written by it alone. */
struct tick_state {
	__u64 ticks;
	__u64 scans; /* of chunks */
	__u64 late;  /* timeouts reported more than LATE_NS after their age */
	__u64 latest_ns;
	__u64 cut; /* ticks that ended before their work, to go on at the next one */
	__u64 next_ns;
	__u64 busy; /* a CPU is at it */
};

/* ---------------------------------------------------------------- counters */

#define RUN_HISTORY 256 /* power of two */

/* One CPU's own lines: written by that CPU only, read by all. */
struct cpu_state {
	__u64 seen[TRACKERS];	    /* pairs completed */
	__u64 table_full[TRACKERS]; /* entries lost: window full */
	__u64 replaced[TRACKERS];   /* entries that met a stale slot of their key */
	__u64 recorded;		    /* flight records written, perf backend */
	__u64 record_lost;	    /* flight records that found no ring, or were refused by it */
	__u64 position[2];	    /* flight records written into each bank, mmap backend */
	__u64 switches;		    /* position in ran */
	__u64 unseen;		    /* context switches that the kernel's tracepoint left out */
	__u64 reclaimed;	    /* pending work whose task died */
	__u64 histogram_lost;	    /* delays of a CPU that came after the histograms were made */
	__u64 asked_ns;		    /* when the last question was sent */
	__u64 chain_cut;	    /* branches and softirqs that a chain was not followed to */
	__u64 chain_met;	    /* wake-ups of tasks that were busy with an older chain */
	__u64 chain_ended;	    /* chains ended because of their age */
	__u64 chain_unseen;	    /* chains whose return to user space cannot be seen */
	__u64 later_time_ns;	    /* outlier whose user stack is owed; 0: none */
	__u64 later_sp;		    /* user stack pointer then */
	__u32 later_tid;
	/* What interrupts its tasks now, as WAKER_*; 0: nothing. With the task it runs on top of. */
	__u32 in_irq;
	__u32 in_hrtimer, hrtimer_tid;
	__u32 in_softirq, softirq_tid;
	struct span_losses span;
	struct ran ran[RUN_HISTORY];
};

#include "pair_abi.h"

#endif
