/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Growth of a pending table. Arrays have one size for ever, so a table that
 * becomes crowded gets another segment, as large as all it has: user space is
 * told, makes the array, and puts it here. Nothing that is pending moves, and
 * a key that is found in the first segment costs what it always did; others
 * are looked for only where that fails.
 *
 * A slot is a number: its segment in the upper bits, then its bucket and the
 * position there.
 */
#ifndef TAILCAM_GROWTH_H
#define TAILCAM_GROWTH_H

#include "lib/messages.h"
#include "lib/pending.h"

#define SEGMENT_OF(index) ((u32)(index) >> SEGMENT_SHIFT)
#define SEGMENT_INDEX(index) ((u32)(index) & ((1u << SEGMENT_SHIFT) - 1))

#define SEGMENT_MAP(map, count, value_type)                         \
	struct {                                                    \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);           \
		__uint(max_entries, count);                         \
		__type(key, u32);                                   \
		__array(                                            \
			values, struct {                            \
				__uint(type, BPF_MAP_TYPE_ARRAY);   \
				__uint(map_flags, BPF_F_INNER_MAP); \
				__uint(max_entries, 1);             \
				__type(key, u32);                   \
				__type(value, value_type);          \
			});                                         \
	} map SEC(".maps")

/* Keys of further segments of all tables, at table * SEGMENTS + segment; made by the daemon as tables grow. */
SEGMENT_MAP(more_keys, TABLES *SEGMENTS, struct bucket);

/* How each table has grown; written by the daemon, but for wanted. Sized by it: TABLES. */
ARRAY_MAP(growths, struct growth);

/* A value by its slot: of the first segment, or a further one. */
#define SLOT_AT(first, more, index)                                           \
	({                                                                    \
		u32 segment = SEGMENT_OF(index), slot = SEGMENT_INDEX(index); \
		void *found = NULL;                                           \
                                                                              \
		if (!segment) {                                               \
			found = bpf_map_lookup_elem(first, &slot);            \
		} else {                                                      \
			void *inner = bpf_map_lookup_elem(more, &segment);    \
                                                                              \
			if (inner)                                            \
				found = bpf_map_lookup_elem(inner, &slot);    \
		}                                                             \
		found;                                                        \
	})

static __always_inline void *segment_keys(u32 table, u32 segment)
{
	u32 index = table * SEGMENTS + segment;

	return bpf_map_lookup_elem(&more_keys, &index);
}

/* The slot of key in a further segment, or NO_SLOT. */
__noinline int more_find(u32 table, u64 key)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);

	if (!g)
		return NO_SLOT;
	for (u32 s = 1; s < SEGMENTS; s++) {
		void *keys = s <= g->segments ? segment_keys(table, s) : NULL;
		int index;

		if (!keys)
			break;
		index = pending_find(keys, g->mask[s], key, HASHED);
		if (index >= 0)
			return index | s << SEGMENT_SHIFT;
	}
	return NO_SLOT;
}

/* Tells user space, once, that the table is too small. */
__noinline int grow(u32 table)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);
	struct grow_message *m;

	if (!g || g->wanted || __sync_val_compare_and_swap(&g->wanted, 0, 1))
		return 0;
	m = message_reserve(RING_MESSAGES, sizeof(*m));
	if (!m) {
		g->wanted = 0;
		return 0;
	}
	m->type = GROW_TYPE;
	m->table = table;
	bpf_ringbuf_submit(m, 0);
	return 0;
}

/* Claims a slot for a new key in a further segment, or returns NO_SLOT. */
__noinline int more_claim(u32 table, u64 key)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);
	bool crowded = false;
	int index = NO_SLOT;

	if (!g)
		return NO_SLOT;
	for (u32 s = 1; s < SEGMENTS; s++) {
		void *keys = s <= g->segments ? segment_keys(table, s) : NULL;

		if (!keys)
			break;
		index = pending_take(keys, g->mask[s], key, HASHED, &crowded);
		if (index >= 0) {
			index |= s << SEGMENT_SHIFT;
			break;
		}
	}
	if (index < 0 || crowded)
		grow(table);
	return index;
}

/* Frees a slot of a further segment; the caller has zeroed its value. */
__noinline int more_release(u32 table, u32 index)
{
	void *keys = segment_keys(table, SEGMENT_OF(index));

	if (keys)
		pending_release(keys, SEGMENT_INDEX(index));
	return 0;
}

/* The key at a slot, or 0. */
static __always_inline u64 table_key_at(u32 table, void *keys, u32 index)
{
	u32 b = SEGMENT_INDEX(index) >> 3;
	volatile struct bucket *bucket;

	if (SEGMENT_OF(index))
		keys = segment_keys(table, SEGMENT_OF(index));
	if (!keys)
		return 0;
	bucket = bpf_map_lookup_elem(keys, &b);
	return bucket ? bucket->key[index & 7] : 0;
}

static __always_inline bool has_grown(u32 table)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);

	return g && g->segments;
}

/* The slot of key in a table, or NO_SLOT. */
static __always_inline int table_find(u32 table, void *keys, u32 mask, u64 key, enum spread spread)
{
	int index = pending_find(keys, mask, key, spread);

	if (index < 0 && has_grown(table))
		index = more_find(table, key);
	return index;
}

/* The slot of key, claimed if it had none; *fresh tells. NO_SLOT: the table is full, and the caller counts it. */
static __always_inline int table_claim(u32 table, void *keys, u32 mask, u64 key, enum spread spread, bool *fresh)
{
	int index = table_find(table, keys, mask, key, spread);
	bool crowded = false;

	*fresh = index < 0;
	if (index >= 0)
		return index;
	index = pending_take(keys, mask, key, spread, &crowded);
	if (index >= 0 && !crowded)
		return index;
	if (!has_grown(table)) {
		grow(table);
		return index;
	}
	return index >= 0 ? index : more_claim(table, key);
}

static __always_inline void table_release(u32 table, void *keys, int index)
{
	if (SEGMENT_OF(index))
		more_release(table, index);
	else
		pending_release(keys, index);
}

#endif
