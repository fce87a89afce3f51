/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where outliers of system calls are made, and their facts for histograms. At
 * the tracepoints, preemption is off, so a CPU needs one. Programs at functions
 * stay on their CPU but may be preempted by others of their kind: they claim
 * one of several.
 */
#ifndef TAILCAM_TRACKER_SYSCALL_SCRATCH_H
#define TAILCAM_TRACKER_SYSCALL_SCRATCH_H

#include "lib/rules.h"

#ifdef CALLS_BY_FUNCTION

struct call_scratch {
	struct scratch s;
	u64 busy;
};

/* CALL_SCRATCHES a CPU; written by that CPU. Sized by the daemon. */
MAP(call_scratches, ARRAY, 0, 1, u32, struct call_scratch);

/* NULL: all are taken, which is counted. */
static __always_inline struct scratch *call_scratch_claim(u32 cpu)
{
	struct cpu_state *me;

#pragma unroll
	for (int i = 0; i < CALL_SCRATCHES; i++) {
		u32 index = cpu * CALL_SCRATCHES + i;
		struct call_scratch *c = bpf_map_lookup_elem(&call_scratches, &index);

		if (c && !c->busy && !__sync_val_compare_and_swap(&c->busy, 0, 1))
			return &c->s;
	}
	me = this_cpu(cpu);
	if (me)
		__sync_fetch_and_add(&me->call_crowded, 1);
	return NULL;
}

static __always_inline void call_scratch_release(struct scratch *s)
{
	__sync_lock_test_and_set(&((struct call_scratch *)s)->busy, 0);
}

#else

static __always_inline struct scratch *call_scratch_claim(u32 cpu)
{
	u32 index = cpu * SCRATCHES + TRACK_SYSCALL;

	return bpf_map_lookup_elem(&scratches, &index);
}

static __always_inline void call_scratch_release(struct scratch *s)
{
}

#endif

#endif
