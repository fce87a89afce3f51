/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What others worked for who make a task wait: its waker, when it wakes it after a sleep
 * past the floor, and who has the CPU for long, when it leaves it. Both are current at
 * that moment, and in the kernel (see lib/kept_context.h).
 */
#ifndef TAILCAM_TRACKER_SCHED_CONTEXT_H
#define TAILCAM_TRACKER_SCHED_CONTEXT_H

#include "lib/kept_context.h"
#include "lib/run_history.h"

/* A run that is noted takes this long at least: so there are few. */
#define CONTEXT_RUN_NS 1000000

/* prev, which is current, leaves its CPU. Called while the run history has its run as the last one. */
static __always_inline void context_of_run(struct task_struct *prev, u32 tid, struct cpu_state *me, u64 now)
{
	struct run_segment *run = &me->segments[(me->switches - 1) & (RUN_HISTORY - 1)];

	if (run->tid == tid && now - run->start_ns >= CONTEXT_RUN_NS && !(prev->flags & PF_KTHREAD))
		context_keep(tid, CONTEXT_RUN, now);
}

/* The context of the waker, of that wake-up. */
static __always_inline void context_of_waker(struct outlier *out, u64 woken)
{
	struct context_key key = {.of = out->tid, .kind = CONTEXT_WAKER};
	struct kept_context *kept = bpf_map_lookup_elem(&kept_contexts, &key);

	if (kept && kept->time_ns == woken)
		__builtin_memcpy(out->waker_trace_id, kept->id, sizeof(kept->id));
}

/* The context of who ran longest since then: events.OnCPU of the daemon. */
static __always_inline void context_of_longest(struct outlier *out, u64 since)
{
	struct context_key key = {.kind = CONTEXT_RUN};
	struct kept_context *kept;
	u64 longest = 0;

	for (int i = 0; i < TOP_RUNS; i++) {
		struct run_total *run = &out->runs[i];

		if (run->ns > longest && run->tid != out->tid) {
			longest = run->ns;
			key.of = run->tid;
		}
	}
	kept = bpf_map_lookup_elem(&kept_contexts, &key);
	if (!longest || !kept || (s64)(kept->time_ns - since) < 0)
		return;
	out->run_tid = key.of;
	__builtin_memcpy(out->run_trace_id, kept->id, sizeof(kept->id));
}

#endif
