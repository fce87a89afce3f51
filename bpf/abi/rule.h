/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Rules as the kernel side has them, and what they have done. */
#ifndef TAILCAM_ABI_RULE_H
#define TAILCAM_ABI_RULE_H

#include <linux/types.h>

#include "abi/tracker.h"

enum rule_size {
	MAX_RULES = 64,	     /* in one generation */
	MAX_OVERRIDES = 256, /* all rules together */
	MAX_GLOBS = 512,     /* all comm globs together */
};

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
	MATCH_NAME = 1 << 18,
	MATCH_NOT_NAME = 1 << 19,
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
	MATCH_FUNCTION = 1U << 31, /* functions, not_functions, or both */
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
	__u32 vectors;		    /* bits of softirq vectors */
	__u64 names, not_names;	    /* bits of verdicts of kind name */
	__u16 irq_set, not_irq_set; /* numbers in map sets */
	__u16 cpu_set, not_cpu_set;
	__u8 phases;
	__u8 from, ends; /* chain */
	__u8 _pad;
	__u16 tid_set, not_tid_set;
	__u64 first_sector, last_sector;
	struct glob_range key, not_key; /* span: in the table of key globs */
	__u64 functions, not_functions; /* bits of verdicts of kind function; functions 0: any */
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
	__u8 adaptive;	  /* the daemon moves the threshold: see lib/limit.h */
	__u8 paused;	  /* fires nothing */
	__u8 _pad[11];
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

/* What the daemon found out about a cgroup, a device, the name of a handler or queue (its id: a hash), or a function (its address). */
enum verdict_kind {
	VERDICT_CGROUP = 0,
	VERDICT_DEVICE = 1,
	VERDICT_NAME = 2,
	VERDICT_FUNCTION = 3,
};

/* How eight bytes more of a handler's name are added to its hash. */
enum name_hash {
	NAME_HASH_FACTOR = 0x9e3779b97f4a7c15,
	NAME_HASH_SHIFT = 29,
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
	__u64 burst_full;      /* adaptive: when the bucket of firings is empty again (lib/limit.h) */
	__u64 burst_level;     /* average of the delays past the threshold since then */
	__u64 held_back;       /* delays past the threshold that did not fire for it */
	__u64 bucket_ns;       /* rate limit (limit.h): when the bucket is full again */
	__u64 asked_ns;	       /* the same of outliers that the daemon must decide */
	__u64 limited;	       /* outliers that the rate limit refused */
	__u64 _pad[2];
};

/* Argument of the program ratchet: a delay to claim a record with, or 0 to begin anew. */
struct ratchet_call {
	__u64 delay_ns;
	__u32 id; /* of the rule */
	__u32 _pad;
};

#endif
