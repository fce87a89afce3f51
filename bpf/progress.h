/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where a slow system call was: each time a thread leaves its CPU within a call
 * that is past the floor, its kernel stack is kept, so that a call of seconds
 * shows how it got on.
 */
#ifndef TAILCAM_PROGRESS_H
#define TAILCAM_PROGRESS_H

#include "grow.h"
#include "state.h"
#include "task.h"

/* By the thread. Slow calls are few: the kernel forgets the oldest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct progress);
} progresses SEC(".maps");

/* What a new entry begins as; never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct progress);
} no_progress SEC(".maps");

/* prev, which is current, leaves its CPU. */
static __always_inline void progress_note(void *ctx, struct task_struct *prev, u32 state, u64 now)
{
	u32 tid = prev->pid, none = 0, i;
	struct call_slot *slot;
	struct progress *p, *empty;
	struct progress_stack *e;
	u64 start, count;
	long size;
	int at;

	at = table_find(TABLE_CALLS, &call_keys, call_mask, tid, HASHED);
	if (at < 0)
		return;
	slot = SLOT_AT(&call_slots, &more_call_slots, at);
	if (!slot)
		return;
	start = slot->start_ns;
	if (!start || (s64)(now - start) < (s64)floor_syscall[slot->nr & (SYSCALLS - 1)])
		return;
	p = bpf_map_lookup_elem(&progresses, &tid);
	if (!p) {
		empty = bpf_map_lookup_elem(&no_progress, &none);
		if (!empty || bpf_map_update_elem(&progresses, &tid, empty, BPF_ANY))
			return;
		p = bpf_map_lookup_elem(&progresses, &tid);
		if (!p)
			return;
	}
	if (p->start_ns != start) {
		p->start_ns = start;
		p->count = 0;
	}
	count = p->count++;
	/* The first stays; the others go round. */
	i = count ? 1 + (u32)(count - 1) % (PROGRESS_STACKS - 1) : 0;
	barrier_var(i);
	e = &p->stack[i & (PROGRESS_STACKS - 1)];
	barrier_var(e);
	e->age_ns = now - start;
	e->state = state;
	size = bpf_get_stack(ctx, e->kernel, sizeof(e->kernel), 0);
	e->frames = size > 0 ? size / sizeof(u64) : 0;
}

/* Sends what is known of the call that tid began at start, before its outlier. */
static __always_inline void progress_send(u32 tid, u64 start)
{
	struct progress *p = bpf_map_lookup_elem(&progresses, &tid);
	struct ring_use *use;
	struct progress *out;

	if (!p || p->start_ns != start || !p->count)
		return;
	use = ring_claim(RING_PROGRESS, sizeof(*out));
	if (!use)
		return;
	out = bpf_ringbuf_reserve(&outliers, sizeof(*out), 0);
	if (!out) {
		ring_unclaim(use, sizeof(*out));
		return;
	}
	if (bpf_probe_read_kernel(out, sizeof(*out), p)) {
		bpf_ringbuf_discard(out, 0);
		ring_unclaim(use, sizeof(*out));
		return;
	}
	out->type = PROGRESS_TYPE;
	out->tid = tid;
	bpf_ringbuf_submit(out, 0);
}

#endif
