/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The pending table of declared pairs: that of pending.h, for keys that any
 * number of CPUs may begin and end at the same moment.
 *
 * Claims. Two CPUs that find no slot for a key could each claim one. So a
 * claim is tentative first: the key with a token in its low bits that nobody
 * else has at that time. The claimer then looks through the window:
 *
 *   the key, confirmed            -> it is pending; give the own claim up
 *   a tentative claim before ours -> give the own claim up, and try again
 *   a tentative claim behind ours -> remove it
 *
 * and confirms with a compare-and-swap, which fails if somebody removed it.
 * At most one is confirmed: of two claims A (before) and B (behind), each was
 * written, with a full barrier, before its owner looked. If A looked after B
 * was written, it met B's claim and removed it, or met it confirmed and gave
 * up. If A looked before B was written, then A was written before B looked, so
 * B met A, tentative or confirmed, and gave up. Tokens are unique, so nobody
 * confirms another's claim. A claim that is in the way for long (its owner was
 * interrupted) is removed, so nobody waits for anybody; who is beaten too often
 * gives up, and is counted.
 *
 * Work. start_ns of a confirmed slot is its lock: whoever swaps it from the
 * work's start to 0 owns the work, and ends it, or stores a start again. The
 * start is read before the key and its parts are compared, and starts never
 * repeat, so the swap fails if the slot was given to other work in between.
 */
#ifndef TAILCAM_TRACKER_PAIR_TABLE_H
#define TAILCAM_TRACKER_PAIR_TABLE_H

#include "abi/pair.h"
#include "lib/pending.h"
#include "lib/timeout.h"

/* Buckets of the pending table, less one: at least one, so that a window has two. */
const volatile u32 pair_mask;

/* By number of the pair; written by the daemon. */
volatile u64 floor_pair[MAX_PAIRS];
volatile u64 timeout_pair[MAX_PAIRS];
volatile u32 pair_rules[2][MAX_PAIRS]; /* each generation's index in the rule table, or NO_RULE */
volatile u32 pair_histograms[2][MAX_PAIRS];
/* Declared pairs' work that is pending; claimed and released by any CPU. Sized by the daemon. */
ARRAY_MAP(pair_keys, struct bucket);
ARRAY_MAP(pair_slots, struct pair_slot);
/* Counters, MAX_PAIRS a CPU; written by that CPU, read by the daemon. Sized by it. */
ARRAY_MAP(pair_states, struct pair_state);

static __always_inline struct pair_slot *pair_slot_at(u32 index)
{
	return bpf_map_lookup_elem(&pair_slots, &index);
}

#define TOKEN_BITS 23
#define TOKEN_MASK ((1ULL << TOKEN_BITS) - 1)
#define PAIR_TRIES 8
#define PATIENT_TRIES 4 /* of them before an older claim is removed */

enum pair_result {
	PAIR_BUSY = 0,	  /* other CPUs are at it */
	PAIR_NONE = 1,	  /* it is not pending */
	PAIR_OWNED = 2,	  /* it was pending; its work is the caller's now */
	PAIR_FRESH = 3,	  /* a slot was claimed; it is the caller's to fill */
	PAIR_PENDING = 4, /* it is pending, and stays so */
	PAIR_FULL = 5,	  /* no slot is free, or another key has the same hash */
};

struct pair_try {
	u64 key, token;
	u64 part[PAIR_PARTS];
	u64 start; /* PAIR_OWNED: when the work began */
	u32 index;
	u32 keep; /* leave work that is pending alone */
	u32 result;
	u32 _pad;
};

/* A key without a token: its low bits are zero, the others a hash. 0 stands for no key. */
static __always_inline u64 pair_hash(u32 pair, const u64 *part)
{
	u64 h = (pair + 1) * HASH_FACTOR;

#pragma unroll
	for (int i = 0; i < PAIR_PARTS; i++) {
		h = (h ^ part[i]) * 0xff51afd7ed558ccdULL;
		h ^= h >> 32;
	}
	h *= 0xc4ceb9fe1a85ec53ULL;
	h &= ~TOKEN_MASK;
	return h ? h : TOKEN_MASK + 1;
}

/*
 * What nobody else has: a task is on one CPU at a time, and an interrupt that
 * runs on top of it is done with its claim before the task goes on. All idle
 * tasks have the number 0. Task numbers end at 2^22.
 */
static __always_inline u64 pair_token(u32 tid, u32 cpu)
{
	return tid ? (tid & ((1U << 22) - 1)) + 1 : (1U << 22) + 1 + (cpu & ((1U << 22) - 2));
}

/* Where the key stands, tentative or not, or NO_SLOT. */
static __always_inline int bucket_seek(u32 b, u64 key, u64 *held)
{
	volatile struct bucket *bucket = bpf_map_lookup_elem(&pair_keys, &b);

	if (!bucket)
		return NO_SLOT;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		u64 k = bucket->key[i];

		if ((k & ~TOKEN_MASK) == key) {
			*held = k;
			return opaque_index(b * 8 + i, k);
		}
	}
	return NO_SLOT;
}

static __always_inline void key_swap(u32 index, u64 from, u64 to, bool *done)
{
	u32 b = index >> 3;
	struct bucket *bucket = bpf_map_lookup_elem(&pair_keys, &b);

	*done = bucket && __sync_val_compare_and_swap(&bucket->key[index & 7], from, to) == from;
}

/* Holds the claim with number mine in the window against one bucket of it; false: give it up. */
static __always_inline bool bucket_settle(u32 b, u32 first, u32 mine, u64 key)
{
	struct bucket *bucket = bpf_map_lookup_elem(&pair_keys, &b);

	if (!bucket)
		return false;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		u64 k = *(volatile u64 *)&bucket->key[i];

		if ((k & ~TOKEN_MASK) != key || first + i == mine)
			continue;
		if (!(k & TOKEN_MASK) || first + i < mine)
			return false;
		__sync_val_compare_and_swap(&bucket->key[i], k, 0);
	}
	return true;
}

/* The key at a slot, or 0. */
static __always_inline u64 pair_key_at(u32 index)
{
	u32 b = index >> 3;
	volatile struct bucket *bucket = bpf_map_lookup_elem(&pair_keys, &b);

	return bucket ? bucket->key[index & 7] : 0;
}

/* Takes the work of a confirmed key at c->at over, if it may; BUSY: try again. */
static __always_inline u32 work_take(struct pair_try *c)
{
	u32 index = c->index;
	struct pair_slot *slot = bpf_map_lookup_elem(&pair_slots, &index);
	u64 start;

	if (!slot)
		return PAIR_NONE;
	start = *(volatile u64 *)&slot->start_ns;
	if (!start || pair_key_at(index) != c->key)
		return PAIR_BUSY;
	if (slot->part[0] != c->part[0] || slot->part[1] != c->part[1] || slot->part[2] != c->part[2])
		return PAIR_FULL;
	if (c->keep)
		return PAIR_PENDING;
	if (__sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return PAIR_BUSY;
	c->start = start;
	return PAIR_OWNED;
}

/* One try to take over what is pending. */
static long pair_take_step(u32 i, struct pair_try *c)
{
	u32 b = home(c->key, pair_mask);
	int index;
	LOOP_RESULTS(go_on, stop);

	index = bucket_find(&pair_keys, b, c->key);
	if (index < 0)
		index = bucket_find(&pair_keys, b ^ 1, c->key);
	if (index < 0) {
		c->result = PAIR_NONE;
		return stop;
	}
	c->index = index;
	c->result = work_take(c);
	return c->result == PAIR_BUSY ? go_on : stop;
}

/* One try to claim a slot, or to take over what is pending. */
static long pair_claim_step(u32 i, struct pair_try *c)
{
	u32 b = home(c->key, pair_mask), mine;
	u64 claim = c->key | c->token, held = 0;
	bool done;
	int index;
	LOOP_RESULTS(go_on, stop);

	index = bucket_seek(b, c->key, &held);
	if (index < 0)
		index = bucket_seek(b ^ 1, c->key, &held);
	if (index >= 0 && !(held & TOKEN_MASK)) {
		c->index = index;
		c->result = work_take(c);
		return c->result == PAIR_BUSY ? go_on : stop;
	}
	c->result = PAIR_BUSY;
	if (index >= 0) {
		if (i >= PATIENT_TRIES)
			key_swap(index, held, 0, &done);
		return go_on;
	}
	index = bucket_claim(&pair_keys, b, claim);
	if (index < 0)
		index = bucket_claim(&pair_keys, b ^ 1, claim);
	if (index < 0) {
		c->result = PAIR_FULL;
		return stop;
	}
	mine = (index & 7) + ((u32)index >> 3 == b ? 0 : 8);
	if (!bucket_settle(b, 0, mine, c->key) || !bucket_settle(b ^ 1, 8, mine, c->key)) {
		key_swap(index, claim, 0, &done);
		return go_on;
	}
	key_swap(index, claim, c->key, &done);
	if (!done)
		return go_on;
	c->index = index;
	c->result = PAIR_FRESH;
	return stop;
}

/* Takes over what is pending for c->key. */
static __always_inline void pair_take(struct pair_try *c)
{
	c->result = PAIR_BUSY;
	bpf_loop(PAIR_TRIES, pair_take_step, c, 0);
}

/* Claims a slot for c->key, or takes over what is pending for it. */
static __always_inline void pair_claim(struct pair_try *c)
{
	c->result = PAIR_BUSY;
	bpf_loop(PAIR_TRIES, pair_claim_step, c, 0);
}

/* Gives work that the caller owns back to the others, as started then. */
static __always_inline void pair_publish(struct pair_slot *slot, u64 start)
{
	if (weakly_ordered)
		__sync_lock_test_and_set(&slot->start_ns, start);
	else
		*(volatile u64 *)&slot->start_ns = start;
}

#endif
