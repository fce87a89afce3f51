/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Outliers: a rule fired for one key. */
#ifndef TAILCAM_ABI_OUTLIER_H
#define TAILCAM_ABI_OUTLIER_H

#include <linux/types.h>

#include "abi/tracker.h"

enum outlier_size {
	MAX_STACK = 64,
	TOP_RUNS = 16,	   /* power of two */
	EXTRA_BYTES = 408, /* the largest of them: struct chain */
	EXTRA_NAME = 16,   /* where the name is in those that have one */
};

/* outlier.user_regs, as far as they are preserved over calls. */
enum user_reg {
	USER_IP = 0, /* 0: it has no user space, or nobody asked for its stack there */
	USER_SP = 1,
	USER_SAVED = 2, /* x86: r15, r14, r13, r12, rbp, rbx; arm64: x19 to x30 */
	USER_REGS = 14,
};

enum outlier_cause {
	CAUSE_THRESHOLD = 0,
	CAUSE_TIMEOUT = 1,	 /* it is still pending */
	CAUSE_AFTER_TIMEOUT = 2, /* the exit of what has timed out before */
};

/* outlier.flags */
enum outlier_flag {
	OUTLIER_PREEMPTED = 1 << 0, /* wakeup: the wait began with a preemption */
	OUTLIER_KTHREAD = 1 << 1,
	OUTLIER_SNAPSHOT = 1 << 2,	 /* the limiter lets this one have a snapshot */
	OUTLIER_FROZE = 1 << 3,		 /* and this one switched the recorder's bank */
	OUTLIER_UNDECIDED = 1 << 4,	 /* the daemon must decide whether the rule wants it */
	OUTLIER_NEW = 1 << 5,		 /* wakeup: first run of a new task */
	OUTLIER_USER_LATER = 1 << 6,	 /* a struct user_memory may follow; otherwise it came before, if at all */
	OUTLIER_NO_STACK = 1 << 7,	 /* timeout: this kernel gives no stack here; the daemon must take it */
	OUTLIER_RUNNING = 1 << 8,	 /* timeout: the task was on a CPU then */
	OUTLIER_USER_32 = 1 << 9,	 /* user_regs are of 32-bit code */
	OUTLIER_CONTEXT_LATER = 1 << 10, /* a struct thread_context follows */
};

/* Who really woke a task: the current one, or an interrupt on top of it. The kind, and below it a number. */
enum waker_context {
	WAKER_TASK = 0,
	WAKER_SOFTIRQ = 1 << 14, /* | vector */
	WAKER_IRQ = 2 << 14,	 /* | irq */
	WAKER_HRTIMER = 3 << 14,
	WAKER_NUMBER = (1 << 14) - 1, /* all bits set: not known */
	/* Of a softirq that deals with packets: */
	WAKER_LOCAL = 1 << 13,	/* this machine sent them, probably the waker, in a system call */
	WAKER_REMOTE = 1 << 12, /* or anybody else */
	/* Of records alone: */
	WAKER_SIGNAL = 1 << 16, /* it has a signal for the task that it wakes */
	WAKER_THAW = 1 << 17,	/* that was frozen in its sleep */
};

/* Who ran on a CPU from start_ns on, until the next segment's start. */
struct run_segment {
	__u64 start_ns;
	__u32 tid;
	__u32 pid;
	char comm[TASK_COMM_LEN];
};

/* How long a task ran on a CPU within a wait. */
struct run_total {
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
	__u32 kernel_frames;
	__u32 owner;			 /* of its bytes in the ring buffer: the rule's id (struct ring_use) */
	__u32 waker_context;		 /* WAKER_*: what ran on top of the waker's task */
	struct run_total runs[TOP_RUNS]; /* who ran instead; in no order, those with ns 0 are empty */
	__u64 user_regs[USER_REGS];	 /* enum user_reg */
	__u64 user_start_ns;		 /* when the thread began, of CLOCK_BOOTTIME */
	__u64 user_switches;		 /* how often it had left its CPU; of timeouts always */
	__u8 trace_id[16];		 /* of the thread's context; zeros: none */
	__u8 span_id[8];
	__u64 extra[EXTRA_BYTES / 8]; /* what only this tracker knows: a struct of its own */
	/* wakeup, offcpu: contexts of others, zeros: none. */
	__u8 waker_trace_id[16]; /* of the waker, when it woke the task after a sleep past the floor */
	__u8 waker_span_id[8];
	__u8 run_trace_id[16]; /* of who ran longest of runs, when it last left its CPU after CONTEXT_RUN_NS or more */
	__u8 run_span_id[8];
	__u32 run_tid;
	__u32 _pad;
	__u64 kernel[MAX_STACK];
	__u64 waker[MAX_STACK]; /* kernel stack of the waker */
};

/* outlier.extra of irq and softirq. */
struct irq_extra {
	__u32 irq;
	__u32 vector; /* softirq */
	__u32 phase;  /* softirq: PHASE_* */
	__u32 _pad;
	char name[WORK_NAME_LEN]; /* irq: of the handler */
};

#endif
