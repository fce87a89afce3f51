/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What both objects know of declared pairs: the main one, whose tick looks for
 * timeouts, and those made from pair.bpf.c, one a hook. The second kind is
 * loaded with the maps and the live variables of the first.
 */
#ifndef TAILCAM_PAIR_STATE_H
#define TAILCAM_PAIR_STATE_H

/* Buckets of the pending table, less one: at least one, so that a window has two. */
const volatile u32 pair_mask;

#define NO_RULE (~0U)

/* By number of the pair. */
volatile u64 floor_pair[MAX_PAIRS];
volatile u64 timeout_pair[MAX_PAIRS];
volatile u32 pair_rules[2][MAX_PAIRS]; /* each generation's place in the rule table, or NO_RULE */

volatile u32 pair_histograms[2][MAX_PAIRS]; /* the same in the table of rules with histograms */

/* A begun piece of work. start_ns is also its lock: 0 while somebody fills or ends it. */
struct pair_slot {
	u64 start_ns;
	u64 part[PAIR_PARTS];
	u64 task; /* at the entry: struct task_struct *, as a number */
	u32 tid, pid;
	u32 pair;
	u32 depth; /* PAIR_COUNT: entries less exits */
	u32 uid;
	u32 cpu;
	/* Second cache line. */
	u64 cgroup_id;
	char comm[TASK_COMM_LEN];
	struct deadline deadline;
	u32 kthread;
	u32 own_task; /* the key holds the tid: who it is is read when it is needed */
	/* Labels of the entry, if there are any. */
	u8 label[PAIR_LABELS][PAIR_TEXT];
};

_Static_assert(__builtin_offsetof(struct pair_slot, cgroup_id) == 64, "what every pair needs fills one cache line");
_Static_assert(sizeof(struct pair_slot) == 256, "four cache lines");

ARRAY_MAP(pair_keys, struct bucket);
ARRAY_MAP(pair_slots, struct pair_slot);
ARRAY_MAP(pair_states, struct pair_state); /* MAX_PAIRS elements a possible CPU */

#endif
