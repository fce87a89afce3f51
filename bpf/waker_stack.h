/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Kernel stacks of wakers. They must be taken at the wake-up, when it is not
 * known yet whether the wait will be long. A rule of the offcpu tracker knows
 * the sleep by then, so only long ones pay; a rule of the wakeup tracker makes
 * every wake-up of the machine pay some microseconds.
 *
 * The stack is kept by the woken thread's id, with the time of the wake-up, so
 * that what an older wake-up left is never taken for this one's.
 */
#ifndef TAILCAM_WAKER_STACK_H
#define TAILCAM_WAKER_STACK_H

#include "state.h"

struct waker_stack {
	u64 time_ns; /* of the wake-up */
	u64 frames;
	u64 kernel[MAX_STACK];
};

/* By the woken thread; written at its wake-up, read when it gets a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct waker_stack);
} waker_stacks SEC(".maps");

/* Where a stack is taken, one a CPU: wake-ups run with interrupts off. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct waker_stack);
} waker_scratch SEC(".maps");

/* Keeps the stack of current, which wakes thread tid. */
static __always_inline void waker_stack_keep(void *ctx, u32 tid, u32 cpu, u64 now)
{
	struct waker_stack *w = bpf_map_lookup_elem(&waker_scratch, &cpu);
	long size;

	if (!w)
		return;
	size = bpf_get_stack(ctx, w->kernel, sizeof(w->kernel), 0);
	if (size <= 0)
		return;
	w->time_ns = now;
	w->frames = size / sizeof(u64);
	bpf_map_update_elem(&waker_stacks, &tid, w, BPF_ANY);
}

/* Copies the stack that was kept at that wake-up into out, if it still is. */
static __always_inline void waker_stack_get(struct outlier *out, u32 tid, u64 woken)
{
	struct waker_stack *w = bpf_map_lookup_elem(&waker_stacks, &tid);

	if (!w || w->time_ns != woken)
		return;
	if (bpf_probe_read_kernel(out->waker, sizeof(out->waker), w->kernel))
		return;
	out->waker_frames = w->frames;
}

#endif
