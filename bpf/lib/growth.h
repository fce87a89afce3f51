/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Growth of a pending table. Arrays have one size for ever, so a table that
 * becomes crowded gets another segment, as large as all it has: user space is
 * told, makes the array, and puts it here. Nothing that is pending moves, and
 * a key that is found in the first segment costs what it always did; others
 * are looked for only where that fails.
 *
 * A place is a number: its segment in the upper bits, then its bucket and the
 * position there.
 */
#ifndef TAILCAM_GROWTH_H
#define TAILCAM_GROWTH_H

#include "lib/messages.h"
#include "lib/pending.h"

#define SEGMENT_SHIFT 28
#define SEGMENT_OF(at) ((u32)(at) >> SEGMENT_SHIFT)
#define PLACE_OF(at) ((u32)(at) & ((1u << SEGMENT_SHIFT) - 1))

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

/* How each table has grown; written by the daemon, but for wanted. Sized by tracker. */
ARRAY_MAP(growths, struct growth);

/* A value by its place: of the first segment, or a further one. */
#define SLOT_AT(first, more, at)                                            \
	({                                                                  \
		u32 segment = SEGMENT_OF(at), place = PLACE_OF(at);         \
		void *found = NULL;                                         \
                                                                            \
		if (!segment) {                                             \
			found = bpf_map_lookup_elem(first, &place);         \
		} else {                                                    \
			void *inner = bpf_map_lookup_elem(more, &segment);  \
                                                                            \
			if (inner)                                          \
				found = bpf_map_lookup_elem(inner, &place); \
		}                                                           \
		found;                                                      \
	})

static __always_inline void *segment_keys(u32 table, u32 segment)
{
	u32 at = table * SEGMENTS + segment;

	return bpf_map_lookup_elem(&more_keys, &at);
}

/* The place of key in a further segment, or NOWHERE. */
__noinline int more_find(u32 table, u64 key)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);

	if (!g)
		return NOWHERE;
	for (u32 s = 1; s < SEGMENTS; s++) {
		void *keys = s <= g->segments ? segment_keys(table, s) : NULL;
		int at;

		if (!keys)
			break;
		at = pending_find(keys, g->mask[s], key, HASHED);
		if (at >= 0)
			return at | s << SEGMENT_SHIFT;
	}
	return NOWHERE;
}

/* Tells user space, once, that the table is too small. */
__noinline int grow(u32 table)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);
	struct ring_use *use;
	struct grow_message *m;

	if (!g || g->wanted || __sync_val_compare_and_swap(&g->wanted, 0, 1))
		return 0;
	use = ring_claim(RING_MESSAGES, sizeof(*m));
	m = use ? bpf_ringbuf_reserve(&outliers, sizeof(*m), 0) : NULL;
	if (!m) {
		if (use)
			ring_unclaim(use, sizeof(*m));
		g->wanted = 0;
		return 0;
	}
	m->type = GROW_TYPE;
	m->table = table;
	bpf_ringbuf_submit(m, 0);
	return 0;
}

/* Claims a place for a new key in a further segment, or returns NOWHERE. */
__noinline int more_claim(u32 table, u64 key)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);
	bool crowded = false;
	int at = NOWHERE;

	if (!g)
		return NOWHERE;
	for (u32 s = 1; s < SEGMENTS; s++) {
		void *keys = s <= g->segments ? segment_keys(table, s) : NULL;

		if (!keys)
			break;
		at = pending_take(keys, g->mask[s], key, HASHED, &crowded);
		if (at >= 0) {
			at |= s << SEGMENT_SHIFT;
			break;
		}
	}
	if (at < 0 || crowded)
		grow(table);
	return at;
}

/* Frees a place of a further segment; the caller has zeroed its value. */
__noinline int more_release(u32 table, u32 at)
{
	void *keys = segment_keys(table, SEGMENT_OF(at));

	if (keys)
		pending_release(keys, PLACE_OF(at));
	return 0;
}

/* The key at a place, or 0. */
static __always_inline u64 table_key_at(u32 table, void *keys, u32 at)
{
	u32 b = PLACE_OF(at) >> 3;
	volatile struct bucket *bucket;

	if (SEGMENT_OF(at))
		keys = segment_keys(table, SEGMENT_OF(at));
	if (!keys)
		return 0;
	bucket = bpf_map_lookup_elem(keys, &b);
	return bucket ? bucket->key[at & 7] : 0;
}

static __always_inline bool has_grown(u32 table)
{
	struct growth *g = bpf_map_lookup_elem(&growths, &table);

	return g && g->segments;
}

/* The place of key in a table, or NOWHERE. */
static __always_inline int table_find(u32 table, void *keys, u32 mask, u64 key, enum spread spread)
{
	int at = pending_find(keys, mask, key, spread);

	if (at < 0 && has_grown(table))
		at = more_find(table, key);
	return at;
}

/* The place of key, claimed if it had none; *fresh tells. NOWHERE: the table is full, and the caller counts it. */
static __always_inline int table_claim(u32 table, void *keys, u32 mask, u64 key, enum spread spread, bool *fresh)
{
	int at = table_find(table, keys, mask, key, spread);
	bool crowded = false;

	*fresh = at < 0;
	if (at >= 0)
		return at;
	at = pending_take(keys, mask, key, spread, &crowded);
	if (at >= 0 && !crowded)
		return at;
	if (!has_grown(table)) {
		grow(table);
		return at;
	}
	return at >= 0 ? at : more_claim(table, key);
}

static __always_inline void table_release(u32 table, void *keys, int at)
{
	if (SEGMENT_OF(at))
		more_release(table, at);
	else
		pending_release(keys, at);
}

#endif
