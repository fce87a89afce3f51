/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Spans: how programs announce them, and what is kept of them.
 *
 * A program calls faccessat2(-1, KEY, SPAN_MODE | op, 0), which the kernel
 * refuses at once as no such mode exists; or, for shells, asks whether
 * SPAN_PATH_* followed by KEY may be read, which never may, as /dev/null is no
 * directory. clients/c/tailcam.h and configs/shell/tailcam.sh do the same.
 */
#ifndef TAILCAM_ABI_SPAN_H
#define TAILCAM_ABI_SPAN_H

#include <linux/types.h>

#include "abi/table.h"
#include "abi/tracker.h"

enum span_operation {
	SPAN_SYSCALL = 439, /* faccessat2, on every architecture */
	SPAN_MODE = 0x74630000,
	SPAN_BEGIN = 1,
	SPAN_END = 2,
};

enum span_size {
	SPAN_PATH_LEN = 16, /* of "/dev/null/span+/" and "/dev/null/span-/" */
	SPAN_KEY_LEN = 64,  /* with its NUL */
	MAX_KEY_GLOBS = 128,
};

struct key_glob {
	char pattern[SPAN_KEY_LEN];
};

/* outlier.extra of span. Its begin; the outlier's task ended it, or at a timeout began it. */
struct span_extra {
	char key[SPAN_KEY_LEN];
	char comm[TASK_COMM_LEN];
	__u32 tid;
	__u32 pid;
	__u32 gone; /* timeout: the task that began it has ended */
	__u32 _pad;
};

/*
 * A pending span. start_ns is also its lock: 0 while somebody fills or
 * ends it. Whoever swaps it to 0 owns the slot, and releases or fills it.
 */
struct span_slot {
	__u64 start_ns;
	__u64 key[SPAN_KEY_LEN / 8]; /* text, filled up with NULs */
	__u32 uid;		     /* the kernel's number of the user, whatever the user namespace says */
	__u32 ns;		     /* number of the pid namespace */
	__u64 task;		     /* that began it: struct task_struct *, as a number */
	__u32 tid, pid;
	__u32 cpu;
	__u32 owner; /* index in span_owners, where it is counted */
	__u64 cgroup_id;
	char comm[TASK_COMM_LEN];
	struct deadline deadline;
	__u64 _pad2[4];
};

_Static_assert(sizeof(struct span_slot) == 192, "three cache lines");

/* What spans have lost, in struct cpu_state. */
struct span_losses {
	__u64 unknown;	 /* ends without a begin */
	__u64 bad_key;	 /* empty, too long, or not readable */
	__u64 forgotten; /* evicted for newer ones of the same owner */
	__u64 outvied;	 /* evicted from the owner with most, for one with fewer */
	__u64 expired;	 /* spans that nobody ended for too long */
};

#endif
