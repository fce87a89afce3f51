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
};

/* One CPU's own lines: written by that CPU only, read by all. */
struct cpu_state {
	__u64 seen[TRACKERS];	    /* pairs completed */
	__u64 table_full[TRACKERS]; /* entries lost: window full */
	__u64 replaced[TRACKERS];   /* entries that met a stale slot of their key */
	__u64 switches;		    /* position in segments */
	__u64 unseen;		    /* context switches and wake-ups that the kernel's tracepoints left out */
	__u64 reclaimed;	    /* pending work whose task died */
	__u64 histogram_lost;	    /* delays of a CPU that came after the histograms were made */
	__u64 asked_ns;		    /* when the last question was sent */
	__u64 chain_truncated;	    /* branches and softirqs that a chain was not followed to */
	__u64 chain_met;	    /* wake-ups of tasks that were busy with an older chain */
	__u64 chain_ended;	    /* chains ended because of their age */
	__u64 chain_unseen;	    /* chains whose return to user space cannot be seen */
	__u64 later_time_ns;	    /* outlier that waits for its user stack; 0: none */
	__u64 later_sp;		    /* user stack pointer then */
	__u32 later_tid;
	/* What interrupts its tasks now, as WAKER_*; 0: nothing. With the task it runs on top of. */
	__u32 in_irq;
	__u32 in_hrtimer, hrtimer_tid;
	__u32 in_softirq, softirq_tid;
	struct span_losses span;
	__u64 steal_seen;		      /* stolen time, as last recorded */
	__u64 steal_clock;		      /* when it was last sampled, */
	__u64 steal_last_ns, steal_before_ns; /* and the time of that sample and of the one before */
	struct run_segment segments[RUN_HISTORY];
};

/* Argument of the program forget_thread. */
struct forget {
	__u32 tid;
};

#endif
