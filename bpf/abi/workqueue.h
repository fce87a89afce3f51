/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Work items: what is pending, and what their outliers carry. */
#ifndef TAILCAM_ABI_WORKQUEUE_H
#define TAILCAM_ABI_WORKQUEUE_H

#include <linux/types.h>

#include "abi/table.h"
#include "abi/tracker.h"

/* A work item that waits, or runs. Its key is its address, plus PHASE_RUN while it runs. */
struct work_slot {
	__u64 start_ns; /* of the wait or the run; 0: none. Written last at the entry, first at the exit */
	__u64 wait_ns;	/* run: how long the item waited before; 0: not known */
	__u64 function;
	__u64 worker; /* run: struct task_struct *; 0: none, it runs in a softirq */
	__u32 worker_tid;
	__u32 cpu;
	__u32 tid, pid; /* that queued it */
	__u16 context;	/* WAKER_*: what ran on top of that task */
	__u16 queued_cpu;
	__u32 queued; /* the item was seen being queued: who by, and onto what */
	char comm[TASK_COMM_LEN];
	char queue[WORK_NAME_LEN];
	struct deadline deadline;
};

/* outlier.extra of workqueue; who queued the item stands in the outlier's waker. */
struct work_extra {
	__u64 work;   /* address of the item */
	__u32 phase;  /* PHASE_WAIT or PHASE_RUN */
	__u32 queued; /* it was seen being queued */
	char queue[WORK_NAME_LEN];
	__u64 function;
	__u64 wait_ns; /* run: how long it waited before; 0: not known */
};

#endif
