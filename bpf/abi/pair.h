/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Declared pairs: the configuration of one hook's program, fixed before it is
 * loaded, and what its outliers carry.
 */
#ifndef TAILCAM_ABI_PAIR_H
#define TAILCAM_ABI_PAIR_H

#include <linux/types.h>

#include "abi/table.h"
#include "abi/tracker.h"

enum pair_size {
	MAX_PAIRS = 64,	     /* rules of track pair that hooks are attached for */
	PAIR_PARTS = 3,	     /* of a key */
	PAIR_LABELS = 4,     /* of both ends together */
	PAIR_TEXT = 32,	     /* bytes of a label */
	PAIR_CONDITIONS = 4, /* of one hook */
	PAIR_SCRATCHES = 4,  /* of one CPU: outliers that it may be making at once */
	FETCH_LOADS = 5,     /* pointers that are followed, and the value at the end */
};

/* Instead of an index in the rule table. */
enum pair_rule {
	NO_RULE = 0xffffffff,
};

enum pair_role {
	PAIR_ENTRY = 0,
	PAIR_EXIT = 1,
	PAIR_CANCEL = 2,
};

/* What an entry does whose key is pending already. */
enum pair_policy {
	PAIR_RESTART = 0, /* replaces the older one */
	PAIR_KEEP = 1,	  /* is left out */
	PAIR_COUNT = 2,	  /* is nested in it: as many exits end it */
};

/* Where a value begins. */
enum fetch_base {
	FETCH_NONE = 0, /* there is no such value */
	FETCH_TID = 1,
	FETCH_PID = 2,
	FETCH_UID = 3,
	FETCH_CPU = 4,
	FETCH_ARGUMENT = 5,  /* number index of a raw tracepoint or a function */
	FETCH_RETURN = 6,    /* of a function */
	FETCH_REGISTER = 7,  /* at byte index of pt_regs */
	FETCH_RECORD = 8,    /* at byte index of a tracepoint's record */
	FETCH_INSIDE = 9,    /* text: the record itself at byte index */
	FETCH_DATA_LOC = 10, /* text: where the word at byte index of the record points to, in it */
	FETCH_CONSTANT = 11,
};

enum fetch_text {
	FETCH_NUMBER = 0,
	FETCH_STRING = 1, /* ends with a NUL */
	FETCH_BYTES = 2,
};

/*
 * A value: begin at base, then for each load read what stands at the offset
 * from there. The last load reads the value, those before it pointers. Text
 * stands at the offset after the last load.
 */
struct fetch {
	__u8 base;
	__u8 loads;
	__u8 user;	  /* bit of each load that reads user memory; text counts as one more load */
	__u8 text;	  /* enum fetch_text */
	__u8 bytes;	  /* of the last load, or of the text */
	__u8 left, right; /* shifts that cut the value out of what was read */
	__u8 sign;
	__u32 index;
	__s32 offset[FETCH_LOADS + 1];
	__u32 _pad;
	__u64 constant;
};

/* ==, !=, <, <=, >, >=, & (any of these bits) */
enum pair_operator {
	OPERATOR_EQ = 1,
	OPERATOR_NE = 2,
	OPERATOR_LT = 3,
	OPERATOR_LE = 4,
	OPERATOR_GT = 5,
	OPERATOR_GE = 6,
	OPERATOR_AND = 7,
};

struct pair_condition {
	struct fetch what;
	__u32 op; /* enum pair_operator; 0: no condition */
	__u32 sign;
	__s64 value;
};

/* One hook of one rule. The verifier knows all of it, and removes what it does not need. */
struct pair_hook {
	__u32 pair; /* number of the rule among pairs */
	__u32 role;
	__u32 policy;
	__u32 own_task; /* the key holds the tid: nobody else ends the work */
	struct fetch part[PAIR_PARTS];
	struct pair_condition condition[PAIR_CONDITIONS];
	struct fetch label[PAIR_LABELS]; /* those of this end */
};

/* Pending work. start_ns is also its lock: 0 while somebody fills or ends it. */
struct pair_slot {
	__u64 start_ns;
	__u64 part[PAIR_PARTS];
	__u64 task; /* at the entry: struct task_struct *, as a number */
	__u32 tid, pid;
	__u32 pair;
	__u32 depth; /* PAIR_COUNT: entries less exits */
	__u32 uid;
	__u32 cpu;
	/* Second cache line. */
	__u64 cgroup_id;
	char comm[TASK_COMM_LEN];
	struct deadline deadline;
	__u32 kthread;
	__u32 own_task; /* the key holds the tid: who it is is read when it is needed */
	/* Labels of the entry, if there are any. */
	__u8 label[PAIR_LABELS][PAIR_TEXT];
};

_Static_assert(__builtin_offsetof(struct pair_slot, cgroup_id) == 64, "what every pair needs fills one cache line");
_Static_assert(sizeof(struct pair_slot) == 256, "four cache lines");

/* outlier.extra of pairs. */
struct pair_extra {
	__u64 part[PAIR_PARTS];
	__u8 label[PAIR_LABELS][PAIR_TEXT]; /* numbers: in the first eight bytes */
	__u32 entry_tid, entry_pid;
	char entry_comm[TASK_COMM_LEN];
	__u32 pair;
	__u32 no_exit; /* timeout: labels of the exit are not known yet */
};

/* What a pair has done and lost, besides struct rule_state; on one CPU; written with atomics. */
struct pair_state {
	__u64 seen;	 /* pairs completed */
	__u64 cancelled; /* ended by a cancel hook */
	__u64 replaced;	 /* restart: older entries that were forgotten for a new one */
	__u64 kept;	 /* keep: entries that were left out for an older one */
	__u64 nested;	 /* count: entries inside another one */
	__u64 full;	 /* entries lost: window full */
	__u64 unsettled; /* entries lost: other CPUs were at the same key all the time */
	__u64 unread;	 /* events left out: a field could not be read */
	__u64 crowded;	 /* outliers lost: too many at once on a CPU */
	__u64 forgotten; /* entries whose exit cannot come any more */
	__u64 missed;	 /* exits lost in the same way */
	__u64 _pad[5];
};

#endif
