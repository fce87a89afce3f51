/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Activities that rules declare by two hooks of a program, and what is known of those that ended. */
#ifndef TAILCAM_ABI_DECLARED_H
#define TAILCAM_ABI_DECLARED_H

#include <linux/types.h>

#include "abi/activity.h"
#include "abi/histogram.h"
#include "abi/pair.h"

enum declared_size {
	DECLARED_RULES = 16,
	DECLARED_TEXT = PAIR_TEXT,
};

/* What a thread works for; by its slot, and written in that thread. */
struct declared_work {
	__u32 rule;		  /* its number */
	__u32 depth;		  /* entries less exits */
	__u8 text[DECLARED_TEXT]; /* what the entry's label has read; any bytes */
};

/* Those of a rule that have ended on one CPU; written with atomics. */
struct declared_totals {
	__u64 count;
	__u64 replaced; /* their end was not seen: another began. In nothing else here */
	__u64 nested;	/* not begun: the thread works for one already */
	__u64 refused;	/* not begun: no slot is free, or the process has tokens of its own */
	__u64 lost;	/* slow ones that found no place in the buffer */
	__u64 wall_ns;
	__u64 max_ns;
	__u64 bar_ns; /* the slowest hundredth takes longer, or so */
	__u64 value[ACTIVITY_WORDS];
	__u64 _pad;
	__u64 bucket[HISTOGRAM_BUCKETS]; /* of wall_ns */
};

/* One that has ended. */
struct declared_ended {
	__u32 rule;
	__u32 pid, tid, uid;
	__u64 cgroup_id;
	__u64 begin_ns, end_ns; /* CLOCK_MONOTONIC */
	char comm[TASK_COMM_LEN];
	__u8 text[DECLARED_TEXT];
	__u64 value[ACTIVITY_WORDS]; /* by enum activity_value */
};

/* One hook of one rule. The verifier knows all of it, and removes what it does not need. */
struct declared_hook {
	struct pair_hook at; /* role, policy, conditions; label[0] of an entry is the text, if text is set */
	__u32 rule;
	__u32 text;
	struct activity_owner owner; /* the entry that declared programs share */
	char name[ACTIVITY_NAME_LEN];
};

#endif
