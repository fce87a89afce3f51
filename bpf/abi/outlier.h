/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Outliers, and what else comes through their ring buffer. Part of abi.h. */
#ifndef TAILCAM_ABI_OUTLIER_H
#define TAILCAM_ABI_OUTLIER_H

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
	__u32 owner;		      /* of its bytes in the ring buffer: the rule's id (struct ring_use) */
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

/*
 * Bytes of the ring buffer, by owner: a rule's id, or one of the kinds of
 * messages that belong to no rule. What is sent and not read yet may not
 * exceed the owner's share while the common part is used up. Never cleared,
 * so that what is in flight is exact whichever rule has the id.
 */
struct ring_use {
	__u64 sent; /* with atomics, by the kernel side */
	__u64 read; /* by the daemon, as it reads */
	__u64 refused;
	__u64 _pad[5];
};

#define RING_HEADER 8 /* that the kernel puts before each record */
#define RING_STACKS (MAX_RULES + 0)
#define RING_PROGRESS (MAX_RULES + 1)
#define RING_MESSAGES (MAX_RULES + 2) /* questions, growth */
#define RING_OWNERS (MAX_RULES + 3)

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

#endif
