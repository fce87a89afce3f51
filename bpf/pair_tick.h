/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tick's part of declared pairs: begun work whose exit does not come. Belongs to look.h. */
#ifndef TAILCAM_PAIR_TICK_H
#define TAILCAM_PAIR_TICK_H

static __always_inline struct pair_slot *pair_slot_at(u32 at)
{
	return bpf_map_lookup_elem(&pair_slots, &at);
}

static __always_inline void pair_look(struct tick_walk *w, u32 at)
{
	struct pair_slot *slot = pair_slot_at(at);
	u64 start;
	u32 pair;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	pair = slot->pair;
	if (start)
		place_look(w, TRACK_PAIR, at, start, start, timeout_pair[pair & (MAX_PAIRS - 1)], &slot->deadline);
}

#endif
