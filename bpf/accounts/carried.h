/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which token threads carried when, for those who explain later who was in whose way: a
 * ring on each CPU, with one element each time a thread leaves its CPU with another token
 * than before. Threads that change none, and all without a slot, write nothing.
 */
#ifndef TAILCAM_ACCOUNTS_CARRIED_H
#define TAILCAM_ACCOUNTS_CARRIED_H

#include "accounts/account.h"

/* CARRIED_ELEMENTS of each CPU. Mapped by the daemon, and sized by it: CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CARRIED_ELEMENTS);
	__type(key, u32);
	__type(value, struct activity_carried);
} carried SEC(".maps");

/* How many each CPU has written. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} carried_written SEC(".maps");

_Static_assert(sizeof(struct activity_carried) == 64, "a cache line");

/*
 * Takes the place of the oldest element of this CPU; NULL: a CPU that came after the ring
 * was made. The daemon reads meanwhile: an element is whole if its time is not 0, and the
 * same before and after.
 */
static __always_inline struct activity_carried *carried_place(void)
{
	u32 zero = 0, index = bpf_get_smp_processor_id() * CARRIED_ELEMENTS;
	u64 *written = bpf_map_lookup_elem(&carried_written, &zero);
	struct activity_carried *to;

	if (!written)
		return NULL;
	index += __sync_fetch_and_add(written, 1) & (CARRIED_ELEMENTS - 1);
	to = bpf_map_lookup_elem(&carried, &index);
	if (to)
		__sync_lock_test_and_set(&to->time_ns, 0);
	return to;
}

/* p carries now[0], and now[1] before; what it carried earlier, it did until its slice began, at least. */
static __always_inline void carried_note(struct task_struct *p, struct account_thread *thread,
					 const struct activity_half *now, const struct activity_half *before, u32 seq,
					 u64 time)
{
	struct activity_thread_state *state = thread->state;
	struct activity_carried *to = carried_place();

	if (!to)
		return;
	to->tid = p->pid;
	to->inside = thread->tid;
	to->seq = seq;
	to->serial = thread->process.serial;
	to->slice_ns = state->tid == thread->tid ? state->slice_ns : 0;
	to->half[0] = *now;
	to->half[1] = *before;
	__sync_lock_test_and_set(&to->time_ns, time);
}

#endif
