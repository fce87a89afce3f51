/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The part of abi.h that is about spans. */
#ifndef TAILCAM_SPAN_ABI_H
#define TAILCAM_SPAN_ABI_H

/*
 * How programs tell of a span: faccessat2(-1, KEY, SPAN_MODE | op, 0), which
 * the kernel refuses at once as no such mode exists; or, for shells, the
 * question whether SPAN_PATH_* followed by KEY may be read, which never may,
 * as /dev/null is no directory. Both are the same in tracker/span,
 * configs/include/tailcam.h and configs/shell/tailcam.sh.
 */
#define SPAN_SYSCALL 439 /* faccessat2, on every architecture */
#define SPAN_MODE 0x74630000
#define SPAN_BEGIN 1
#define SPAN_END 2
#define SPAN_PATH_LEN 16 /* of "/dev/null/span+/" and "/dev/null/span-/" */

#define SPAN_KEY_LEN 64 /* with its NUL */
#define MAX_KEY_GLOBS 128

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

/* What spans have lost, in cpu_state. */
struct span_losses {
	__u64 unknown;	 /* ends without a begin */
	__u64 bad_key;	 /* empty, too long, or not readable */
	__u64 forgotten; /* spans that made way for newer ones of their owner */
	__u64 outvied;	 /* spans of whoever had most, that made way for an owner with fewer */
	__u64 expired;	 /* spans that nobody ended for too long */
};

/* Argument of the program expire_span: 1: it is freed. */
struct span_old {
	__u64 start_ns;
	__u32 at;
	__u32 _pad;
};

#endif
