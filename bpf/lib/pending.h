/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The pending table: open addressing in preallocated arrays, no locks, no
 * allocation. A key may stand in one of the 16 slots of two neighbouring
 * buckets. Keys are apart from values, so that looking a key up costs one
 * cache line, or two.
 *
 * One compare-and-swap claims a slot, one store releases it. Values of free
 * slots are zero: whoever releases a slot zeroes its value first, so a slot
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

#define NO_SLOT (-1)

/*
 * Where a key is looked for first. HASHED: in its home bucket, spread by a
 * hash. DIRECT: at the one slot that its number names, so that neighbours
 * share a cache line; only if another key sits there, where its hash says.
 *
 * DIRECT is for keys that are handed out one after the other and stay, as
 * those of tasks do: their lines are hardly ever written. For keys that come
 * and go it would make CPUs take each other's lines all the time. Two big
 * processes whose ids meet lose nothing: the second one's are spread.
 */
enum spread { DIRECT, HASHED };

static __always_inline u32 home(u64 key, u32 mask)
{
	return (u32)((key * HASH_FACTOR) >> 40) & mask;
}

/* The bucket that the key's number names. */
static __always_inline struct bucket *direct_bucket(void *keys, u32 mask, u64 key, u32 *b)
{
	*b = (u32)(key >> 3) & mask;
	return bpf_map_lookup_elem(keys, b);
}

/* The slot of key in bucket number b, or NO_SLOT. */
static __always_inline int bucket_find(void *keys, u32 b, u64 key)
{
	volatile struct bucket *bucket = bpf_map_lookup_elem(keys, &b);

	if (!bucket)
		return NO_SLOT;
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (bucket->key[i] == key)
			return opaque_index(b * 8 + i, bucket->key[0]);
	return NO_SLOT;
}

/* The slot of key, or NO_SLOT. */
static __always_inline int pending_find(void *keys, u32 mask, u64 key, enum spread spread)
{
	u32 b;
	int index;

	if (spread == DIRECT) {
		volatile struct bucket *own = direct_bucket(keys, mask, key, &b);

		if (own && own->key[key & 7] == key)
			return b * 8 + (key & 7);
	}
	b = home(key, mask);
	index = bucket_find(keys, b, key);
	return index >= 0 ? index : bucket_find(keys, b ^ (1 & mask), key);
}

/* Frees the slot; the caller has zeroed its value. */
static __always_inline void pending_release(void *keys, int index)
{
	u32 b = (u32)index >> 3;
	struct bucket *bucket = bpf_map_lookup_elem(keys, &b);

	if (!bucket)
		return;
	if (weakly_ordered)
		__sync_lock_test_and_set(&bucket->key[index & 7], 0);
	else
		*(volatile u64 *)&bucket->key[index & 7] = 0;
}

/* Claims a free slot of bucket number b, or returns NO_SLOT. */
static __always_inline int bucket_claim(void *keys, u32 b, u64 key)
{
	struct bucket *bucket = bpf_map_lookup_elem(keys, &b);

	if (!bucket)
		return NO_SLOT;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		if (*(volatile u64 *)&bucket->key[i])
			continue;
		if (!__sync_val_compare_and_swap(&bucket->key[i], 0, key))
			return opaque_index(b * 8 + i, key);
	}
	return NO_SLOT;
}

/*
 * Claims a free slot for a key that has none, or returns NO_SLOT: the window
 * is full. *crowded: it nearly is.
 */
static __always_inline int pending_take(void *keys, u32 mask, u64 key, enum spread spread, bool *crowded)
{
	u32 b;
	int index;

	if (spread == DIRECT) {
		struct bucket *own = direct_bucket(keys, mask, key, &b);

		if (own && !*(volatile u64 *)&own->key[key & 7] &&
		    !__sync_val_compare_and_swap(&own->key[key & 7], 0, key))
			return opaque_index(b * 8 + (key & 7), key);
	}
	b = home(key, mask);
	index = bucket_claim(keys, b, key);
	if (index >= 0)
		return index;
	index = bucket_claim(keys, b ^ (1 & mask), key);
	if (index >= 0 && (index & 7) > 4)
		*crowded = true;
	return index;
}

/*
 * The slot of key, claimed if it had none; *fresh tells. NO_SLOT: the window
 * is full, and the caller counts it.
 */
static __always_inline int pending_claim(void *keys, u32 mask, u64 key, enum spread spread, bool *fresh)
{
	int index = pending_find(keys, mask, key, spread);
	bool crowded;

	*fresh = index < 0;
	return index >= 0 ? index : pending_take(keys, mask, key, spread, &crowded);
}

#endif
