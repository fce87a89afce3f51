/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The tick: some timer interrupt, every 8 ms, that scans for pending work which
 * is too old. First it collects the slots that are due (the scan), then it holds
 * each against the rules (the expiry). Both at once would be a deeper nest of
 * calls than the kernel's verifier allows (MAX_CALL_FRAMES).
 */
#ifndef TAILCAM_TICK_H
#define TAILCAM_TICK_H

#include "lib/timeout_scan.h"
#include "trackers/block.h"
#include "trackers/irq.h"
#include "trackers/pair_timeout.h"
#include "trackers/sched.h"
#include "trackers/span.h"
#include "trackers/syscall.h"
#include "trackers/workqueue.h"

#define TICK_NS 8000000
#define LOOK_NS (LOOK_MS * 1000000ULL)
#define LOOKS_FROM_NS (LOOKS_FROM_MS * 1000000ULL)
#define SCAN_BUDGET_NS 500000  /* of a tick */
#define TICK_BUDGET_NS 1000000 /* it runs with interrupts off */

static long slot_step(u32 i, struct tick_walk *w)
{
	u32 index = w->segment << SEGMENT_SHIFT | (w->bucket * 8 + (i & 7));

	if (w->table == TABLE_TASKS)
		task_scan(w, index);
	else if (w->table == TABLE_CALLS)
		call_scan(w, index);
	else if (w->table == TABLE_PAIRS)
		pair_scan(w, index);
	else if (w->table == TABLE_SPANS)
		span_scan(w, index);
	else if (w->table == TABLE_WORKS)
		work_scan(w, index);
	else
		request_scan(w, index);
	return 0;
}

static long bucket_step(u32 i, struct tick_walk *w)
{
	u32 b = w->base + i;
	volatile struct bucket *bucket;
	u64 any = 0;
	void *keys;

	if (w->segment) {
		keys = segment_keys(w->table, w->segment);
		bucket = keys ? bpf_map_lookup_elem(keys, &b) : NULL;
	} else if (w->table == TABLE_TASKS)
		bucket = bpf_map_lookup_elem(&task_keys, &b);
	else if (w->table == TABLE_CALLS)
		bucket = bpf_map_lookup_elem(&call_keys, &b);
	else if (w->table == TABLE_PAIRS)
		bucket = bpf_map_lookup_elem(&pair_keys, &b);
	else if (w->table == TABLE_SPANS)
		bucket = bpf_map_lookup_elem(&span_keys, &b);
	else if (w->table == TABLE_WORKS)
		bucket = bpf_map_lookup_elem(&work_keys, &b);
	else
		bucket = bpf_map_lookup_elem(&request_keys, &b);
	if (!bucket)
		return 1; /* a small table ends within its first chunk */
#pragma unroll
	for (int k = 0; k < 8; k++)
		any |= bucket->key[k];
	if (any) {
		w->bucket = b;
		bpf_loop(8, slot_step, w, 0);
	}
	return 0;
}

/*
 * Of a chunk: nothing in it can be due before due, and it need not be looked through before scan.
 * In the map: on the stack, the verifier would tell apart what makes no difference.
 */
static __always_inline void soonest(u64 due, u64 scan)
{
	if (due < ticker.so_far_ns)
		ticker.so_far_ns = due;
	if (scan < ticker.scan_so_far_ns)
		ticker.scan_so_far_ns = scan;
}

/*
 * How long before it must be a chunk is looked through, one at each tick: all at once they would
 * take some 0.2 ms, with interrupts off.
 */
static __always_inline u64 scan_early(u64 least)
{
	return least >= LOOKS_FROM_NS ? LOOK_NS : least / 8;
}

static long chunk_step(u32 i, struct tick_walk *w)
{
	u32 index = (w->table * SEGMENTS + w->segment) * MAX_CHUNKS + i;
	struct chunk *c = bpf_map_lookup_elem(&chunks, &index);
	u32 due = w->due, gen = generation, table;
	u64 least;

	if (!c || i >= MAX_CHUNKS || w->table >= TABLES)
		return 1;
	if (c->generation == gen && (c->scan_ns > w->now || (w->looked && c->due_ns > w->now))) {
		soonest(c->due_ns, c->scan_ns);
		return 0;
	}
	w->looked = 1;
	table = w->table;
	barrier_var(table);
	least = timeout_least[table & 7];
	w->force = c->generation != gen;
	w->base = i * CHUNK_BUCKETS;
	w->next = w->now + least; /* of work that starts from now on */
	ticker.scans++;
	bpf_loop(CHUNK_BUCKETS, bucket_step, w, 0);
	if (w->due >= MAX_DUE) { /* the rest of it at the next tick */
		ticker.truncated++;
		return 1;
	}
	c->generation = gen;
	c->due_ns = w->due > due ? w->now : w->next;
	c->scan_ns = c->due_ns;
	if (c->due_ns == w->now + least)
		c->scan_ns -= scan_early(least);
	soonest(c->due_ns, c->scan_ns);
	if (bpf_ktime_get_ns() - w->now < SCAN_BUDGET_NS)
		return 0;
	w->over = 1;
	ticker.truncated++;
	return 1;
}

static long segment_step(u32 i, struct tick_walk *w)
{
	u32 table = i / SEGMENTS, segment = i % SEGMENTS;
	struct growth *g;

	barrier_var(table);
	barrier_var(segment);
	if ((s64)timeout_least[table & 7] == (s64)NEVER)
		return 0;
	soonest(w->now + timeout_least[table & 7], NEVER); /* of work that starts from now on */
	if (w->due >= MAX_DUE || w->over)
		return 0;
	w->table = table;
	w->segment = segment;
	g = bpf_map_lookup_elem(&growths, &table);
	if (g)
		bpf_loop(g->chunks[segment & (SEGMENTS - 1)], chunk_step, w, 0);
	return 0;
}

static long expire_step(u32 i, struct tick_walk *w)
{
	struct due_slot *p = bpf_map_lookup_elem(&due_slots, &i);
	u64 spent;

	if (!p)
		return 1;
	if (p->tracker == TRACK_SYSCALL)
		expire_call(w, p->index);
	else if (p->tracker == TRACK_BLOCK)
		expire_request(w, p->index);
	else if (p->tracker == TRACK_WAKEUP || p->tracker == TRACK_OFFCPU)
		expire_task(w, p->tracker, p->index);
	spent = bpf_ktime_get_ns() - w->now;
	if (spent < TICK_BUDGET_NS)
		return 0;
	ticker.truncated++;
	return 1;
}

/*
 * A timer of any kind has expired on this CPU. There are many on a busy machine; for an
 * idle one user space keeps one going, but not while nothing can be due. To know that well
 * ahead, chunks are looked through before they must be, as long as nothing in them is near.
 */
static __always_inline void tick(u64 now, u32 cpu)
{
	struct tick_walk w = {.now = now, .cpu = cpu};
	u32 gen = generation;
	bool left;

	if (now < ticker.next_ns)
		return;
	if (now < ticker.scan_ns && ticker.generation == gen) {
		ticker.next_ns = now + TICK_NS;
		ticker.ticks++;
		return;
	}
	if (__sync_val_compare_and_swap(&ticker.busy, 0, 1))
		return; /* another CPU is at it */
	ticker.next_ns = now + TICK_NS;
	ticker.ticks++;
	ticker.so_far_ns = ticker.scan_so_far_ns = NEVER;
	bpf_loop(TABLES * SEGMENTS, segment_step, &w, 0);
	left = w.over || w.due >= MAX_DUE;
	ticker.soonest_ns = left ? now : ticker.so_far_ns;
	ticker.scan_ns = left ? now : ticker.scan_so_far_ns;
	ticker.generation = gen;
	if (w.due)
		bpf_loop(w.due, expire_step, &w, 0);
	if (w.due && (s64)timeout_least[TABLE_PAIRS] != (s64)NEVER)
		bpf_loop(w.due, expire_pair_step, &w, 0);
	if (track_span && w.due && (s64)timeout_least[TABLE_SPANS] != (s64)NEVER)
		bpf_loop(w.due, expire_span_step, &w, 0);
	if (track_workqueue && w.due && (s64)timeout_least[TABLE_WORKS] != (s64)NEVER)
		bpf_loop(w.due, expire_work_step, &w, 0);
	if (track_irq || track_softirq) {
		interrupts_tick(&w);
		if (timeout_interrupts != NEVER && interrupts_chunk.due_ns < ticker.scan_ns)
			ticker.scan_ns = interrupts_chunk.due_ns;
	}
	__sync_lock_test_and_set(&ticker.busy, 0);
}

#endif
