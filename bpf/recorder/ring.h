/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The flight recorder: fixed records into per-CPU rings. The outlier that may
 * have a snapshot freezes: with one store, for all CPUs, the history before it
 * is safe from being overwritten until the daemon has read it.
 */
#ifndef TAILCAM_RECORDER_RING_H
#define TAILCAM_RECORDER_RING_H

#include "abi/record.h"
#include "abi/recorder.h"
#include "lib/state.h"

/* The recorder: its backend, how many records a part of a ring holds (less one, and as a power of two), its groups. */
const volatile bool record_mmap;
const volatile u32 record_mask;
const volatile u32 record_shift;
const volatile bool record_sched;
const volatile bool record_irq;
const volatile bool record_timer;
const volatile bool record_block;
const volatile bool record_workqueue;
const volatile bool record_process;
const volatile bool record_syscall;

volatile struct recorder_state recorder;

/* Each CPU's place in its ring; written by that CPU, read by the daemon. Sized by it: CPUs. */
ARRAY_MAP(record_rings, struct record_ring);

/* Backend mmap: RING_PARTS parts a CPU; written by that CPU, read by the daemon. Sized by it. */
ARRAY_MAP(records, struct record);

/* The same, backend perf: two banks of one perf ring a CPU; filled in by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} bank0 SEC(".maps"), bank1 SEC(".maps");

static __always_inline void record_head(struct record *r, u16 type, u32 cpu, u32 tid, u64 now)
{
	/* In one store, as it is read: several smaller ones would have to reach the cache first. */
	u64 head = type | (u64)(u16)cpu << 16 | (u64)tid << 32;

	__builtin_memcpy(r, &head, sizeof(head));
	r->time_ns = now;
}

/* A record of the current task, its payload zero. */
static __always_inline void record_init(struct record *r, u16 type)
{
	struct task_struct *current = bpf_get_current_task_btf();

	__builtin_memset(r, 0, sizeof(*r));
	record_head(r, type, bpf_get_smp_processor_id(), current->pid, bpf_ktime_get_ns());
}

/*
 * Gives the part after this one its slot in the ring of a CPU, half a part
 * before it is needed: the oldest slot but for those that are pinned. After
 * an outlier what was written before it is pinned until the daemon has read
 * it; what is written meanwhile goes round in the other slots. A function of
 * its own for the verifier: it is called once in half a part.
 */
__noinline int record_prepare(u32 cpu, u64 part)
{
	struct record_ring *ring = bpf_map_lookup_elem(&record_rings, &cpu);
	u64 freezes = recorder.freezes, released = recorder.released;
	u64 pinned, slot, keep, taken = 0;
	u32 next = 0;

	if (!ring)
		return 0;
	slot = ring->slot[part & 1] & (RING_PARTS - 1);
	pinned = released >= ring->pinned_for ? 0 : ring->pinned;
	if (freezes > released && freezes > ring->pinned_for) {
		for (int i = 0; i < RING_PARTS; i++)
			taken += pinned >> i & 1;
		keep = taken < RING_PARTS - RING_LIVE ? RING_PARTS - RING_LIVE - taken : 0;
		if (keep > RING_KEPT)
			keep = RING_KEPT;
		if (keep > part + 1)
			keep = part + 1; /* a slot that holds nothing is not among them */
		for (int i = 0; i < RING_PARTS; i++) {
			u64 newer = part + 1 - ring->held[i] - keep;

			barrier_var(newer); /* no branch: the verifier would look at every set of pins */
			pinned |= newer >> 63 << i;
		}
		ring->pinned_for = freezes;
	}
	for (int i = 1; i < RING_PARTS; i++) {
		next = (slot + i) & (RING_PARTS - 1);
		if (!(pinned >> next & 1))
			break;
	}
	ring->pinned = pinned;
	*(volatile u64 *)&ring->held[next & (RING_PARTS - 1)] = part + 2;
	*(volatile u64 *)&ring->slot[(part + 1) & 1] = (part + 1) << RING_PART_SHIFT | next;
	return 0;
}

static __always_inline void record_time(struct record *to, u64 time)
{
	if (weakly_ordered)
		__sync_lock_test_and_set(&to->time_ns, time);
	else
		*(volatile u64 *)&to->time_ns = time;
}

/*
 * Writes r into a ring of plain memory. The position is taken atomically: an
 * interrupt may record in between. Who reads meanwhile knows a record by its
 * lap, and that it is whole by its time, which is 0 while it is written.
 */
static __always_inline void record_into_memory(struct record *r, struct record_ring *ring)
{
	u64 n = __sync_fetch_and_add(&ring->position[0], 1);
	u64 part = n >> record_shift, slot, head;
	struct record *to;
	u32 index;

	if ((n & record_mask) == record_mask >> 1)
		record_prepare(r->cpu, part);
	slot = *(volatile u64 *)&ring->slot[part & 1];
	index = ((r->cpu * RING_PARTS + (slot & (RING_PARTS - 1))) << record_shift) + (n & record_mask);
	to = bpf_map_lookup_elem(&records, &index);
	if (!to || slot >> 8 != part) { /* a CPU that came after the rings were made */
		__sync_fetch_and_add(&ring->lost, 1);
		return;
	}
	record_time(to, 0);
	__builtin_memcpy(&head, r, sizeof(head));
	*(volatile u64 *)to = (head & ~((u64)RECORD_LAP_MASK << RECORD_LAP_SHIFT)) | (part & RECORD_LAP_MASK)
											     << RECORD_LAP_SHIFT;
#pragma unroll
	for (int i = 0; i < 6; i++)
		*(volatile u64 *)&to->raw[i] = r->raw[i];
	record_time(to, r->time_ns);

	/*
	 * The next event is to find its cache line: fetching it is half of the cost. No thread's number
	 * needs the last byte, so this changes nothing, should an interrupt have written that record already.
	 */
	index++;
	to = bpf_map_lookup_elem(&records, &index);
	if (to && (n & record_mask) < record_mask)
		((volatile u8 *)&to->tid)[3] = 0;
}

/* Writes r into this CPU's ring, of the current bank if there are two. Returns 0, as a program does. */
static __always_inline int record(void *ctx, struct record *r)
{
	u32 cpu = r->cpu, bank;
	struct record_ring *ring = bpf_map_lookup_elem(&record_rings, &cpu);
	long err;

	if (!ring)
		return 0;
	if (record_mmap) {
		record_into_memory(r, ring);
		return 0;
	}
	bank = recorder.bank & 1;
	if (bank)
		err = bpf_perf_event_output(ctx, &bank1, BPF_F_CURRENT_CPU, r, sizeof(*r));
	else
		err = bpf_perf_event_output(ctx, &bank0, BPF_F_CURRENT_CPU, r, sizeof(*r));
	if (err)
		__sync_fetch_and_add(&ring->lost, 1);
	else
		__sync_fetch_and_add(&ring->position[bank], 1);
	return 0;
}

/*
 * Keeps the history before now from being overwritten. Backend mmap: each CPU
 * pins it (record_prepare) before it comes round to it. perf: switches banks
 * unless the other one is still frozen; true: it did.
 */
static __always_inline bool freeze(u64 now)
{
	if (!record_mmap && __sync_val_compare_and_swap(&recorder.frozen, 0, 1))
		return false;
	recorder.frozen_ns = now;
	__sync_fetch_and_add(&recorder.freezes, 1);
	if (!record_mmap)
		recorder.bank ^= 1;
	return true;
}

#endif
