/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a process has the contexts of its threads (OpenTelemetry's OTEP 4947). */
#ifndef TAILCAM_ABI_CONTEXT_H
#define TAILCAM_ABI_CONTEXT_H

#include <linux/types.h>

/*
 * Where the thread-local variable otel_thread_ctx_v1 is. Written by the daemon,
 * for the program that has run in the process since its last exec: another one has
 * another stack.
 */
struct context_place {
	__u64 start_code;  /* of the program, in mm_struct */
	__u64 start_stack; /* the same */
	__s64 offset;	   /* from the thread pointer, or in the memory of module */
	__u64 module;	   /* 0: offset is from the thread pointer */
	__s32 vector;	   /* of a module: where the thread's vector is, from the thread pointer */
	__s32 length;	   /* where the vector has its length, from its start */
	__u32 entry;	   /* bytes of one entry of the vector */
	__u32 _pad;
};

enum context_kind {
	CONTEXT_WAKER = 0,   /* of a waker, by the woken thread */
	CONTEXT_RUN = 1,     /* of who has run for long, by that thread */
	CONTEXT_REQUEST = 2, /* of who submitted a block request, by its slot */
};

/* A context that is kept: of a moment in which its thread was current. */
struct context_key {
	__u32 of;
	__u32 kind;
};

struct kept_context {
	__u64 time_ns; /* of the wake-up, the end of the run, or the submission */
	__u64 id[3];   /* trace_id, span_id */
};

/* A thread of a program that has a place. */
struct context_thread {
	__u64 pointer; /* thread pointer */
	__u32 pid;
	__u32 tid;
	__u64 switches; /* how often it has left its CPU */
	__u32 running;	/* it is on one */
	__u32 _pad;
	struct context_place place;
};

#endif
