/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What comes through the ring buffer of outliers, and who has how much of it. */
#ifndef TAILCAM_ABI_MESSAGE_H
#define TAILCAM_ABI_MESSAGE_H

#include <linux/types.h>

#include "abi/outlier.h"
#include "abi/rule.h"

/* The first two bytes of each. */
enum message_type {
	OUTLIER_TYPE = 0x7443,
	USER_MEMORY_TYPE = 0x7444,
	PROGRESS_TYPE = 0x7445,
	QUESTION_TYPE = 0x7446,
	GROW_TYPE = 0x7447,
	THREAD_CONTEXT_TYPE = 0x7448,
	THREAD_ATTRIBUTES_TYPE = 0x7449,
};

enum progress_size {
	PROGRESS_STACKS = 8, /* power of two */
	PROGRESS_FRAMES = 32,
};

enum user_copy_size {
	USER_CHUNK = 1024, /* never crosses a page */
	USER_BYTES = 16 * USER_CHUNK,
	ATTRIBUTES_BYTES = 1024, /* of a thread's context: OTEP 4947 recommends 612 at most */
};

/*
 * The memory on which the user stack of an outlier lies, as it was then. It
 * belongs to the outliers with the same tid and time_ns.
 */
struct user_memory {
	__u16 type; /* USER_MEMORY_TYPE */
	__u16 _pad;
	__u32 tid;
	__u64 time_ns; /* outlier.time_ns */
	__u64 base;    /* address of data */
	__u64 bytes;   /* what could be read of it */
	__u8 data[USER_BYTES];
};

/* The trace and span of the outliers with the same tid and time_ns; zeros: none. */
struct thread_context {
	__u16 type; /* THREAD_CONTEXT_TYPE */
	__u16 _pad;
	__u32 tid;
	__u64 time_ns; /* outlier.time_ns */
	__u8 trace_id[16];
	__u8 span_id[8];
};

/*
 * The same with attributes, as the thread has them in its record. Comes before the
 * outliers, or after them in the place of a struct thread_context.
 */
struct thread_attributes {
	__u16 type;  /* THREAD_ATTRIBUTES_TYPE */
	__u16 bytes; /* of each copy */
	__u32 tid;
	__u64 time_ns; /* outlier.time_ns */
	__u8 trace_id[16];
	__u8 span_id[8];
	__u32 pid; /* whose record it is */
	__u32 _pad;
	__u64 start_code; /* and of which program: see struct context_place */
	__u64 start_stack;
	__u8 data[ATTRIBUTES_BYTES];
	__u8 again[ATTRIBUTES_BYTES]; /* read once more: if it differs, it was being written */
};

struct progress_stack {
	__u64 age_ns; /* since the entry */
	__u32 frames;
	__u32 state; /* it left in */
	__u64 kernel[PROGRESS_FRAMES];
};

/*
 * Where a slow system call was each time it left its CPU. Comes before the
 * outlier with the same tid and start_ns.
 */
struct progress {
	__u16 type; /* PROGRESS_TYPE */
	__u16 _pad;
	__u32 tid;
	__u64 start_ns;
	__u64 count; /* switches; the first and the last PROGRESS_STACKS - 1 are kept */
	struct progress_stack stack[PROGRESS_STACKS];
};

/* A pending table is crowded. */
struct grow_message {
	__u16 type; /* GROW_TYPE */
	__u16 table;
	__u32 _pad;
};

/* Asks the daemon for a verdict: a rule with a histogram depends on it. */
struct question {
	__u16 type; /* QUESTION_TYPE */
	__u16 kind; /* enum verdict_kind */
	__u32 generation;
	__u64 id;
	char name[WORK_NAME_LEN]; /* VERDICT_NAME: whose hash id is */
};

/* Who else than a rule, by its id, owns bytes of the ring buffer. */
enum ring_owner {
	RING_STACKS = MAX_RULES + 0,
	RING_PROGRESS = MAX_RULES + 1,
	RING_MESSAGES = MAX_RULES + 2, /* questions, growth */
	RING_OWNERS = MAX_RULES + 3,
	RING_HEADER = 8, /* bytes that the kernel puts before each message */
};

/*
 * Bytes of the ring buffer, by owner: a rule's id, or one of the kinds of
 * messages that belong to no rule. What is sent and not read yet may not
 * exceed the owner's share while the common part is used up. Never cleared,
 * so that what is in flight is exact whichever rule has the id.
 */
struct ring_use {
	__u64 sent; /* with atomics, by the kernel side */
	__u64 read; /* by the daemon, as it reads */
	__u64 refused;
	__u64 _pad[5];
};

/* What the program stack_of_task tells of one task. */
struct task_stack {
	__u64 frames;
	__u64 kernel[MAX_STACK];
};

#endif
