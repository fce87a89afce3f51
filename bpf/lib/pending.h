/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The pending table: open addressing in preallocated arrays, no locks, no
 * allocation. A key may stand in one of the 16 places of two neighbouring
 * buckets. Keys are apart from values, so that looking a key up costs one
 * cache line, or two.
 *
 * One compare-and-swap claims a place, one store releases it. Values of free
 * places are zero: whoever releases a place zeroes its value first, so a place
 * that another CPU has just claimed, and not filled yet, reads as "nothing
 * known", never as what its last owner left there.
 *
 * No two CPUs claim one key at once: a task leaves one CPU at a time (its run
 * queue's lock), is in one system call, and a request is inserted or issued by
 * one. A table whose keys lack such an order must settle double claims.
 */
#ifndef TAILCAM_PENDING_H
#define TAILCAM_PENDING_H

#include "lib/core_fixes.h"
#include "lib/state.h"

#define NOWHERE (-1)

/*
 * Where a key is looked for first. HASHED: in its home bucket, spread by a
 * hash. NUMBERED: at the one place that its number names, so that neighbours
 * share a cache line; only if another key sits there, where its hash says.
 *
 * NUMBERED is for keys that are handed out one after the other and stay, as
 * those of tasks do: their lines are hardly ever written. For keys that come
 * and go it would make CPUs take each other's lines all the time. Two big
 * processes whose ids meet lose nothing: the second one's are spread.
 */
enum spread { NUMBERED, HASHED };

static __always_inline u32 home(u64 key, u32 mask)
{
	return (u32)((key * 0x9e3779b97f4a7c15ULL) >> 40) & mask;
}

/* The bucket that the key's number names. */
static __always_inline struct bucket *numbered(void *keys, u32 mask, u64 key, u32 *b)
{
	*b = (u32)(key >> 3) & mask;
	return bpf_map_lookup_elem(keys, b);
}

/* The place of key in bucket number b, or NOWHERE. */
static __always_inline int bucket_find(void *keys, u32 b, u64 key)
{
	volatile struct bucket *bucket = bpf_map_lookup_elem(keys, &b);

	if (!bucket)
		return NOWHERE;
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (bucket->key[i] == key)
			return any_place(b * 8 + i, bucket->key[0]);
	return NOWHERE;
}

/* The place of key, or NOWHERE. */
static __always_inline int pending_find(void *keys, u32 mask, u64 key, enum spread spread)
{
	u32 b;
	int at;

	if (spread == NUMBERED) {
		volatile struct bucket *own = numbered(keys, mask, key, &b);

		if (own && own->key[key & 7] == key)
			return b * 8 + (key & 7);
	}
	b = home(key, mask);
	at = bucket_find(keys, b, key);
	return at >= 0 ? at : bucket_find(keys, b ^ (1 & mask), key);
}

/* Frees the place; the caller has zeroed its value. */
static __always_inline void pending_release(void *keys, int at)
{
	u32 b = (u32)at >> 3;
	struct bucket *bucket = bpf_map_lookup_elem(keys, &b);

	if (!bucket)
		return;
	if (weakly_ordered)
		__sync_lock_test_and_set(&bucket->key[at & 7], 0);
	else
		*(volatile u64 *)&bucket->key[at & 7] = 0;
}

/* Claims a free place of bucket number b, or returns NOWHERE. */
static __always_inline int bucket_claim(void *keys, u32 b, u64 key)
{
	struct bucket *bucket = bpf_map_lookup_elem(keys, &b);

	if (!bucket)
		return NOWHERE;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		if (*(volatile u64 *)&bucket->key[i])
			continue;
		if (!__sync_val_compare_and_swap(&bucket->key[i], 0, key))
			return any_place(b * 8 + i, key);
	}
	return NOWHERE;
}

/*
 * Claims a free place for a key that has none, or returns NOWHERE: the window
 * is full. *crowded: it nearly is.
 */
static __always_inline int pending_take(void *keys, u32 mask, u64 key, enum spread spread, bool *crowded)
{
	u32 b;
	int at;

	if (spread == NUMBERED) {
		struct bucket *own = numbered(keys, mask, key, &b);

		if (own && !*(volatile u64 *)&own->key[key & 7] &&
		    !__sync_val_compare_and_swap(&own->key[key & 7], 0, key))
			return any_place(b * 8 + (key & 7), key);
	}
	b = home(key, mask);
	at = bucket_claim(keys, b, key);
	if (at >= 0)
		return at;
	at = bucket_claim(keys, b ^ (1 & mask), key);
	if (at >= 0 && (at & 7) > 4)
		*crowded = true;
	return at;
}

/*
 * The place of key, claimed if it had none; *fresh tells. NOWHERE: the window
 * is full, and the caller counts it.
 */
static __always_inline int pending_claim(void *keys, u32 mask, u64 key, enum spread spread, bool *fresh)
{
	int at = pending_find(keys, mask, key, spread);
	bool crowded;

	*fresh = at < 0;
	return at >= 0 ? at : pending_take(keys, mask, key, spread, &crowded);
}

#endif
