/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Chains: from an interrupt, a timer or a softirq to the tasks that it wakes. */
#ifndef TAILCAM_ABI_CHAIN_H
#define TAILCAM_ABI_CHAIN_H

#include <linux/types.h>

#include "abi/tracker.h"

enum chain_size {
	CHAIN_STAGES = 12,
};

/* chain.irq of a chain that began without one. */
enum chain_irq {
	CHAIN_NO_IRQ = 0xffffffff,
};

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

/* chain_stage.packed: nanoseconds since the origin, the CPU, enum chain_kind. */
enum chain_packed {
	CHAIN_NS_MASK = 0xffffffffff,
	CHAIN_CPU_SHIFT = 40,
	CHAIN_CPU_MASK = 0xffff,
	CHAIN_KIND_SHIFT = 56,
};

struct chain_stage {
	__u64 packed; /* enum chain_packed */
	__u32 id;     /* irq; vector; thread id */
	__u32 pid;    /* of a task */
	char name[TASK_COMM_LEN];
};

/* outlier.extra of chain: the way so far. */
struct chain {
	__u64 origin_ns; /* 0: none */
	__u8 from;	 /* CHAIN_FROM_* */
	__u8 stages;
	__u8 truncated; /* something was left out: a branch, or a stage at its end */
	__u8 end;	/* CHAIN_END_* */
	__u16 tasks;
	__u16 vectors; /* bits of the softirqs that it went through */
	__u32 irq;     /* that it began with, or CHAIN_NO_IRQ */
	__u32 _pad;
	struct chain_stage stage[CHAIN_STAGES];
};

#endif
