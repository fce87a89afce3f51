/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What each CPU counts and keeps. */
#ifndef TAILCAM_ABI_COUNTERS_H
#define TAILCAM_ABI_COUNTERS_H

#include <linux/types.h>

#include "abi/outlier.h"
#include "abi/span.h"
#include "abi/tracker.h"

enum run_history {
	RUN_HISTORY = 256, /* power of two */
	STAGED = 32,	   /* delays that are counted together; power of two */
};

/* Stacks of long waits that a CPU has taken (REC_WAIT). */
struct wait_stacks {
	__u64 window_ns; /* when the window began in which so many were taken: */
	__u64 uninterruptible;
	__u64 interruptible;
	__u64 left_out; /* uninterruptible ones beyond the limit */
	__u64 taken;	/* and how long that took: its price */
	__u64 taken_ns;
	__u64 timed_ns; /* when the next one is due of who was woken by a timer */
	__u64 _pad;
};

/* Stacks that a CPU has taken of tasks that it ran for long (REC_RUN). */
struct run_stacks {
	__u64 last_ns; /* when the last one was taken */
	__u64 taken;   /* and how long that took: its price */
	__u64 taken_ns;
	__u64 broken;  /* whose frames could not be told from those of the interrupt */
	__u64 calls;   /* that read or write, of who has run for long */
	__u64 busy_ns; /* when the next stack is due of who serves others */
	__u64 _pad[2];
};

enum in_hrtimer {
	HRTIMER_EXPIRES = 1,
	HRTIMER_WORKED = 2, /* and has woken a task, queued work or completed a request */
};

/* A CPU that spins for a lock of the kernel. */
struct spin {
	__u64 lock;
	__u64 start_ns; /* 0: it does not */
	__u32 tid;	/* current */
	__u32 flags;	/* LCB_F_* */
	__u64 _pad;
};

/* One CPU's own lines: written by that CPU only, read by all. */
struct cpu_state {
	/* What each switch needs fills the first cache line. */
	__u64 steal_seen;	    /* stolen time, as last recorded */
	__u64 steal_clock;	    /* when it was last sampled, */
	__u64 steal_last_ns;	    /* the time of that sample */
	__u64 steal_before_ns;	    /* and of the one before */
	__u32 switches;		    /* position in segments */
	__u32 staged;		    /* position in delays; at each multiple of STAGED all before it have been counted */
	__u32 last_tid;		    /* that got the CPU at the last switch; 0: idle, or none yet */
	__u32 later_tid;	    /* of later_time_ns */
	__u64 seen[TRACKERS];	    /* pairs completed; those of wakeup and offcpu are in that line */
	__u64 table_full[TRACKERS]; /* entries lost: window full */
	__u64 replaced[TRACKERS];   /* entries that met a stale slot of their key */
	__u64 unseen;		    /* context switches and wake-ups that the kernel's tracepoints left out */
	__u64 reclaimed;	    /* pending work whose task died */
	__u64 histogram_lost;	    /* delays of a CPU that came after the histograms were made */
	__u64 call_crowded;	    /* system calls past their floor that found no scratch */
	__u64 asked_ns;		    /* when the last question was sent */
	__u64 chain_truncated;	    /* branches and softirqs that a chain was not followed to */
	__u64 chain_met;	    /* wake-ups of tasks that were busy with an older chain */
	__u64 chain_ended;	    /* chains ended because of their age */
	__u64 chain_unseen;	    /* chains whose return to user space cannot be seen */
	__u64 later_time_ns;	    /* outlier that waits for what is to follow; 0: none */
	__u64 later_ip, later_sp;   /* registers of the task in user space then */
	__u32 later_switches;	    /* how often it had left its CPU, the low half */
	__u32 later_flags;	    /* what is to follow: OUTLIER_*_LATER */
	__u32 in_hrtimer, hrtimer_tid; /* a timer expires (enum in_hrtimer), on top of this task */
	struct span_losses span;
	struct wait_stacks waits;
	struct run_stacks runs;
	__u64 _pad[5];
	__u64 tick_ns;	 /* when the tick began that is on its way; 0: none; of group timer */
	__u64 served_ns; /* when its task has last woken another, or was seen to have read or written; of group run */
	__u64 percpu;	 /* what percpu_* of lib/core_fixes.h are offsets from; 0: not known yet */
	__u64 contended; /* waits for locks of the kernel that have begun */
	struct spin spins[2]; /* in a task or an interrupt, and in an interrupt on top of that */
	__u64 delays[STAGED]; /* of wakeup and offcpu, which their histograms do not have yet: ns << 1 | tracker */
	struct run_segment segments[RUN_HISTORY];
};

_Static_assert(sizeof(struct cpu_state) % 64 == 0, "no CPU writes another one's cache lines");

/* Argument of the program forget_thread. */
struct forget {
	__u32 tid;
};

#endif
