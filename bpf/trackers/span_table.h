/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The pending table of spans.
 *
 * Two CPUs that begin one key at once may claim a slot each. That is the same
 * as an entry after an entry, and settled like it: whoever takes a span takes all
 * of its key, and reports the first.
 */
#ifndef TAILCAM_TRACKER_SPAN_TABLE_H
#define TAILCAM_TRACKER_SPAN_TABLE_H

#include "lib/match.h"
#include "lib/pending.h"
#include "lib/timeout.h"
#include "trackers/span_owner.h"

const volatile u32 span_mask;  /* buckets, less one: at least one */
const volatile u32 span_share; /* slots that one owner may have */

/* Spans that have begun; claimed and released by any CPU. Sized by the daemon. */
ARRAY_MAP(span_keys, struct bucket);
ARRAY_MAP(span_slots, struct span_slot);

#define SPAN_DOUBLES 3

/* What span_claim did; below: the number of an owner. */
#define SPAN_NO_ROOM 0xffffffffU
#define SPAN_CLAIMED 0xfffffffeU
#define SPAN_OWN 0xfffffffdU	/* another span of the owner made way */
#define SPAN_OTHERS 0xfffffffcU /* one of an owner that has more did */

struct span_call {
	u64 key;   /* that it has in the pending table */
	u64 start; /* of what was taken */
	u32 uid, ns;
	u32 index;
	u32 doubles; /* other slots of the key that were taken, and freed */
	struct span_owner owner;
};

static __always_inline struct span_slot *span_slot_at(u32 index)
{
	return bpf_map_lookup_elem(&span_slots, &index);
}

static __always_inline u64 span_hash(const u64 *text, u32 uid, u32 ns)
{
	u64 h = (span_seed ^ ((u64)ns << 32 | uid)) * HASH_FACTOR;

#pragma unroll
	for (int i = 0; i < SPAN_KEY_LEN / 8; i++) {
		h ^= h >> 32;
		h = (h ^ text[i]) * 0xff51afd7ed558ccdULL;
	}
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h ? h : 1;
}

/* Frees a slot that the caller owns. */
static __always_inline void span_release(struct span_slot *slot, u32 index)
{
	u32 owner = slot->owner;

	pending_release(&span_keys, index);
	owner_drop(owner);
}

/* 1 if x is not 0, without a branch, of which the verifier would follow both ways sixteen times. */
static __always_inline u32 span_any(u64 x)
{
	u64 minus = -x;

	barrier_var(minus); /* or the compiler sees what it is, and branches */
	return (x | minus) >> 63;
}

/* Bits of the slots of bucket number b that hold key. */
static __always_inline u32 span_bits(u32 b, u64 key)
{
	volatile struct bucket *bucket = bpf_map_lookup_elem(&span_keys, &b);
	u32 bits = 0;

	if (!bucket)
		return 0;
#pragma unroll
	for (int i = 0; i < 8; i++)
		bits |= (span_any(bucket->key[i] ^ key) ^ 1) << i;
	return bits;
}

static __always_inline bool span_is(struct span_slot *slot, const u64 *text, u32 uid, u32 ns)
{
	u64 other = (slot->uid ^ uid) | (slot->ns ^ ns);

#pragma unroll
	for (int i = 0; i < SPAN_KEY_LEN / 8; i++)
		other |= slot->key[i] ^ text[i];
	return !other;
}

struct span_walk {
	struct facts *f;
	struct span_call *c;
	u32 b;
	u32 bits; /* slots still to look at */
	u32 found;
	u32 _pad;
};

static long span_take_step(u32 n, struct span_walk *w)
{
	struct span_call *c = w->c;
	u32 low = w->bits & -w->bits;
	u32 i = span_any(low & 0xaaaa) | span_any(low & 0xcccc) << 1 | span_any(low & 0xf0f0) << 2;
	u32 index = (w->b ^ span_any(low & 0xff00)) * 8 + i;
	struct span_slot *slot;
	u64 start;
	LOOP_RESULTS(go_on, stop);

	if (!low)
		return stop;
	w->bits ^= low;
	slot = span_slot_at(index);
	if (!slot)
		return go_on;
	start = *(volatile u64 *)&slot->start_ns;
	if (!start || !span_is(slot, w->f->key, c->uid, c->ns))
		return go_on;
	if (__sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return go_on; /* another CPU was faster */
	if (w->found) {
		c->doubles++;
		span_release(slot, index);
		return go_on;
	}
	w->found = 1;
	c->index = index;
	c->start = start;
	return go_on;
}

/*
 * Takes the span with the key of c and the text of f: its slot is at c->at,
 * and the caller's. False: there is none. The start is read before the rest is
 * compared, and starts do not repeat, so that the swap fails if the slot was
 * given to another span in between.
 */
static __always_inline bool span_take(struct facts *f, struct span_call *c)
{
	struct span_walk w = {.f = f, .c = c, .b = home(c->key, span_mask)};

	c->doubles = 0;
	w.bits = span_bits(w.b, c->key) | span_bits(w.b ^ 1, c->key) << 8;
	if (!w.bits)
		return false;
	bpf_loop(SPAN_DOUBLES, span_take_step, &w, 0);
	return w.found;
}

struct span_victim {
	u64 start;
	u64 most;  /* slots that its owner has */
	u64 count; /* slots of the owner for whom it makes way */
	u32 b;
	u32 index;
	u32 mine; /* that owner */
	u32 own;  /* only one of its own will do */
};

/* The oldest span of the owner that has most in the window. */
static long span_victim_step(u32 i, struct span_victim *v)
{
	u32 index = (i < 8 ? v->b : v->b ^ 1) * 8 + (i & 7);
	struct span_slot *slot = span_slot_at(index);
	u64 start, count;
	u32 owner;

	if (!slot)
		return 0;
	start = *(volatile u64 *)&slot->start_ns;
	owner = *(volatile u32 *)&slot->owner;
	if (!start || (v->own && owner != v->mine))
		return 0;
	count = owner_count(owner);
	if (owner != v->mine && count <= v->count)
		return 0;
	if (count < v->most || (count == v->most && start >= v->start))
		return 0;
	v->most = count;
	v->start = start;
	v->index = index;
	return 0;
}

/*
 * Makes another span make way for that of c: the oldest of whoever has most in
 * the window, as long as that is more than c's owner has. own: only its own.
 * Returns whose it was, SPAN_NO_ROOM: none.
 */
__noinline u32 span_evict(struct span_call *c, u32 b, u32 own)
{
	struct span_victim v = {.start = NEVER, .b = b, .own = own};
	struct span_slot *slot;
	struct bucket *bucket;
	u32 index, owner;

	if (!c)
		return SPAN_NO_ROOM;
	v.count = c->owner.count;
	v.mine = c->owner.index;
	bpf_loop(16, span_victim_step, &v, 0);
	if ((s64)v.start == (s64)NEVER)
		return SPAN_NO_ROOM;
	index = v.index;
	slot = span_slot_at(index);
	if (!slot || __sync_val_compare_and_swap(&slot->start_ns, v.start, 0) != v.start)
		return SPAN_NO_ROOM;
	owner = slot->owner;
	b = index >> 3;
	bucket = bpf_map_lookup_elem(&span_keys, &b);
	if (!bucket)
		return SPAN_NO_ROOM;
	__sync_lock_test_and_set(&bucket->key[index & 7], c->key);
	c->index = index;
	owner_drop(owner);
	return owner;
}

/*
 * Claims a slot for the key of c. An owner's spans may fill the table up to
 * its share; where there is no room, one of the owner that has most makes way,
 * and never one of an owner that has fewer than c's.
 */
__noinline u32 span_claim(struct span_call *c)
{
	int index = NO_SLOT;
	u32 b, from;
	bool full;

	if (!c || !owner_add(&c->owner))
		return SPAN_NO_ROOM;
	b = home(c->key, span_mask);
	full = c->owner.count > span_share;
	if (!full) {
		index = bucket_claim(&span_keys, b, c->key);
		if (index < 0)
			index = bucket_claim(&span_keys, b ^ 1, c->key);
	}
	if (index >= 0) {
		c->index = index;
		return SPAN_CLAIMED;
	}
	from = span_evict(c, b, full);
	if (from == SPAN_NO_ROOM) /* another CPU may have been faster */
		from = span_evict(c, b, full);
	if (from == SPAN_NO_ROOM)
		owner_drop(c->owner.index);
	else
		from = from == c->owner.index ? SPAN_OWN : SPAN_OTHERS;
	return from;
}

#endif
