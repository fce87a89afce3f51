/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The first half of the tick: which places of the pending tables may be due.
 * Tables are read in chunks, and of each chunk it is known before when nothing
 * in it can be due: most ticks read nothing.
 */
#ifndef TAILCAM_LOOK_H
#define TAILCAM_LOOK_H

#include "block.h"
#include "sched.h"
#include "span.h"
#include "syscall.h"

#define LOOK_BUDGET_NS 500000 /* of a tick */
#define MAX_DUE 1024	      /* places in one tick */

struct due_place {
	u32 tracker;
	u32 at;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_DUE);
	__type(key, u32);
	__type(value, struct due_place);
} due_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLES *SEGMENTS *MAX_CHUNKS);
	__type(key, u32);
	__type(value, struct chunk);
} chunks SEC(".maps");

volatile struct tick_state ticker;

struct tick_walk {
	u64 now;
	u64 next; /* nothing else in the chunk can be due before */
	u32 table;
	u32 base; /* first bucket of the chunk */
	u32 due;  /* places collected */
	u32 force;
	u32 bucket;
	u32 segment;
	u32 over; /* enough for one tick */
	u32 cpu;
};

/* Collects a place if its work, begun at begin, is due. */
static __always_inline void place_look(struct tick_walk *w, u32 tracker, u32 at, u64 start, u64 begin, u64 timeout,
				       struct deadline *d)
{
	struct due_place *p;
	u64 next = begin + timeout;
	u32 n = w->due;

	if ((s64)timeout == (s64)NEVER)
		return;
	if ((s64)(w->now - next) >= 0) {
		if (w->force || d->for_ns != start || d->due_ns <= w->now) {
			p = bpf_map_lookup_elem(&due_places, &n);
			if (!p)
				return;
			p->tracker = tracker;
			p->at = at;
			w->due++;
			return;
		}
		next = d->due_ns;
	}
	if (next < w->next)
		w->next = next;
}

static __always_inline void task_look(struct tick_walk *w, u32 at)
{
	struct task_slot *slot = task_slot_at(at);
	u64 off, wake, begin;
	u32 class;

	if (!slot)
		return;
	off = *(volatile u64 *)&slot->off_ns;
	wake = *(volatile u64 *)&slot->wake_ns;
	if (track_wakeup && wake) {
		begin = (s64)(wake - off) < 0 ? off : wake;
		place_look(w, TRACK_WAKEUP, at, wake, begin, timeout_wakeup, &slot->wake_deadline);
	}
	if (track_offcpu && off) {
		class = state_class(slot->state);
		barrier_var(class);
		place_look(w, TRACK_OFFCPU, at, off, off, timeout_offcpu[class & 3], &slot->off_deadline);
	}
}

static __always_inline void call_look(struct tick_walk *w, u32 at)
{
	struct call_slot *slot = call_slot_at(at);
	u64 start;
	u32 nr;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	nr = slot->nr;
	if (start)
		place_look(w, TRACK_SYSCALL, at, start, start, timeout_syscall[nr & (SYSCALLS - 1)], &slot->deadline);
}

static __always_inline void request_look(struct tick_walk *w, u32 at)
{
	struct request_slot *slot = request_slot_at(at);
	u64 start;
	u32 op;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->issue_ns;
	op = op_class(slot->cmd_flags);
	barrier_var(op);
	if (start)
		place_look(w, TRACK_BLOCK, at, start, start, timeout_block[op & 7], &slot->deadline);
}

#include "pair_tick.h"
#include "span_tick.h"

static long place_step(u32 i, struct tick_walk *w)
{
	u32 at = w->segment << SEGMENT_SHIFT | (w->bucket * 8 + (i & 7));

	if (w->table == TABLE_TASKS)
		task_look(w, at);
	else if (w->table == TABLE_CALLS)
		call_look(w, at);
	else if (w->table == TABLE_PAIRS)
		pair_look(w, at);
	else if (w->table == TABLE_SPANS)
		span_look(w, at);
	else
		request_look(w, at);
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
	else
		bucket = bpf_map_lookup_elem(&request_keys, &b);
	if (!bucket)
		return 1; /* a small table ends within its first chunk */
#pragma unroll
	for (int k = 0; k < 8; k++)
		any |= bucket->key[k];
	if (any) {
		w->bucket = b;
		bpf_loop(8, place_step, w, 0);
	}
	return 0;
}

static long chunk_step(u32 i, struct tick_walk *w)
{
	u32 at = (w->table * SEGMENTS + w->segment) * MAX_CHUNKS + i;
	struct chunk *c = bpf_map_lookup_elem(&chunks, &at);
	u32 due = w->due, live = generation, table;
	u64 least;

	if (!c || i >= MAX_CHUNKS || w->table >= TABLES)
		return 1;
	if (c->due_ns > w->now && c->generation == live)
		return 0;
	table = w->table;
	barrier_var(table);
	least = timeout_least[table & 7];
	w->force = c->generation != live;
	w->base = i * CHUNK_BUCKETS;
	w->next = w->now + least; /* of work that begins from now on */
	ticker.scans++;
	bpf_loop(CHUNK_BUCKETS, bucket_step, w, 0);
	if (w->due >= MAX_DUE) { /* the rest of it at the next tick */
		ticker.truncated++;
		return 1;
	}
	c->generation = live;
	c->due_ns = w->due > due ? w->now : w->next;
	if (bpf_ktime_get_ns() - w->now < LOOK_BUDGET_NS)
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
	if ((s64)timeout_least[table & 7] == (s64)NEVER || w->due >= MAX_DUE || w->over)
		return 0;
	w->table = table;
	w->segment = segment;
	g = bpf_map_lookup_elem(&growths, &table);
	if (g)
		bpf_loop(g->chunks[segment & (SEGMENTS - 1)], chunk_step, w, 0);
	return 0;
}

#endif
