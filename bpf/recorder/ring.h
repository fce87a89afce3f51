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

/* Bit of each record type that is not recorded for now; written by the daemon. */
volatile u64 records_shed;

_Static_assert(RECORD_TYPES <= 64, "records_shed has a bit of each");

static __always_inline bool record_shed(u16 type)
{
	return records_shed >> (type & 63) & 1;
}

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

/* In one store, as it is read: several smaller ones would have to reach the cache first. */
static __always_inline u64 head_word(u16 type, u32 cpu, u32 tid)
{
	return type | (u64)(u16)cpu << 16 | (u64)tid << 32;
}

static __always_inline void record_head(struct record *r, u16 type, u32 cpu, u32 tid, u64 now)
{
	u64 head = head_word(type, cpu, tid);

	__builtin_memcpy(r, &head, sizeof(head));
	r->time_ns = now;
}

static __always_inline void short_head(struct short_record *r, u16 type, u32 cpu, u32 tid, u64 now)
{
	u64 head = head_word(type | RECORD_SHORT, cpu, tid);

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

static __always_inline void record_time(u64 *time_ns, u64 time)
{
	if (weakly_ordered)
		__sync_lock_test_and_set(time_ns, time);
	else
		*(volatile u64 *)time_ns = time;
}

/* The head of a record of this part, where others have the CPU. */
static __always_inline void record_lap(void *to, u64 head, u64 part)
{
	*(volatile u64 *)to = (head & ~((u64)RECORD_LAP_MASK << RECORD_LAP_SHIFT)) | (part & RECORD_LAP_MASK)
											     << RECORD_LAP_SHIFT;
}

/*
 * Takes the next number, atomically, as an interrupt may record in between; alone:
 * interrupts are off, and no program that records runs in an NMI. Its part and place;
 * NULL: this CPU has none. Who reads meanwhile knows a record by its lap, and that it
 * is whole by its time, which is 0 while it is written.
 */
static __always_inline struct record *record_place(struct record_ring *ring, u32 cpu, bool alone, u64 *in, u32 *at)
{
	u64 n = alone ? ring->position[0]++ : __sync_fetch_and_add(&ring->position[0], 1);
	u64 part = n >> record_shift, slot;
	struct record *to, *next;
	u32 index;

	if ((n & record_mask) == record_mask >> 1)
		record_prepare(cpu, part);
	slot = *(volatile u64 *)&ring->slot[part & 1];
	index = ((cpu * RING_PARTS + (slot & (RING_PARTS - 1))) << record_shift) + (n & record_mask);
	to = bpf_map_lookup_elem(&records, &index);
	if (!to || slot >> RING_PART_SHIFT != part) { /* a CPU that came after the rings were made */
		__sync_fetch_and_add(&ring->lost, 1);
		return NULL;
	}
	*in = part;
	*at = index;
	record_time(&to->time_ns, 0);

	/*
	 * The next event is to find its cache line: fetching it is half of the cost. No thread's number
	 * needs the last byte, so this changes nothing, should an interrupt have written that record already.
	 */
	index++;
	next = bpf_map_lookup_elem(&records, &index);
	if (next && (n & record_mask) < record_mask)
		((volatile u8 *)&next->tid)[3] = 0;
	return to;
}

/* Writes r into a ring of plain memory. */
static __always_inline void record_into_memory(struct record *r, struct record_ring *ring)
{
	u64 part, head;
	u32 index;
	struct record *to = record_place(ring, r->cpu, false, &part, &index);

	if (!to)
		return;
	__builtin_memcpy(&head, r, sizeof(head));
	record_lap(to, head, part);
#pragma unroll
	for (int i = 0; i < 6; i++)
		*(volatile u64 *)&to->raw[i] = r->raw[i];
	record_time(&to->time_ns, r->time_ns);
}

/*
 * The same of a short record. The second one of a pair goes where the first
 * one is, unless a new part has been begun. Short records do not interrupt each
 * other: switches and wake-ups have interrupts off; a task that wakes itself
 * has not, but the kernel lets no program interrupt itself.
 */
static __always_inline void record_short_into_memory(struct short_record *r, struct record_ring *ring, bool alone)
{
	u32 half = ring->half, index = half - 1;
	u64 part = ring->position[0] >> record_shift, head;
	struct short_record *to = NULL;
	struct record *first;

	if (half && ring->half_part == (u32)part)
		to = bpf_map_lookup_elem(&records, &index);
	if (to) {
		to++;
		ring->half = 0;
		ring->position[1]++;
	} else {
		first = record_place(ring, r->cpu, alone, &part, &index);
		if (!first)
			return;
		to = (struct short_record *)first;
		record_time(&to[1].time_ns, 0);
		ring->half = index + 1;
		ring->half_part = part;
	}
	__builtin_memcpy(&head, r, sizeof(head));
	record_lap(to, head, part);
	*(volatile u64 *)&to->raw[0] = r->raw[0];
	*(volatile u64 *)&to->raw[1] = r->raw[1];
	record_time(&to->time_ns, r->time_ns);
}

/* Into the perf ring of this CPU, of the current bank. */
static __always_inline void record_into_perf(void *ctx, void *r, u64 size, struct record_ring *ring)
{
	u32 bank = recorder.bank & 1;
	long err;

	if (bank)
		err = bpf_perf_event_output(ctx, &bank1, BPF_F_CURRENT_CPU, r, size);
	else
		err = bpf_perf_event_output(ctx, &bank0, BPF_F_CURRENT_CPU, r, size);
	if (err) {
		__sync_fetch_and_add(&ring->lost, 1);
		return;
	}
	__sync_fetch_and_add(&ring->position[bank], 1);
	if (size == sizeof(struct short_record))
		__sync_fetch_and_add(&ring->pinned, 1);
}

/* Writes r into this CPU's ring, of the current bank if there are two. Returns 0, as a program does. */
static __always_inline int record(void *ctx, struct record *r)
{
	u32 cpu = r->cpu;
	struct record_ring *ring = bpf_map_lookup_elem(&record_rings, &cpu);

	if (!ring || record_shed(r->type))
		return 0;
	if (record_mmap)
		record_into_memory(r, ring);
	else
		record_into_perf(ctx, r, sizeof(*r), ring);
	return 0;
}

/* The same of a short record; alone: with interrupts off. */
static __always_inline void record_short(void *ctx, struct short_record *r, bool alone)
{
	u32 cpu = r->cpu;
	struct record_ring *ring = bpf_map_lookup_elem(&record_rings, &cpu);

	if (!ring)
		return;
	if (record_mmap)
		record_short_into_memory(r, ring, alone);
	else
		record_into_perf(ctx, r, sizeof(*r), ring);
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
