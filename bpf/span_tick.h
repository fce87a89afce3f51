/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tick's part of spans: those that do not end. Belongs to look.h. */
#ifndef TAILCAM_SPAN_TICK_H
#define TAILCAM_SPAN_TICK_H

static __always_inline void span_look(struct tick_walk *w, u32 at)
{
	struct span_slot *slot = span_slot_at(at);
	u64 start;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	if (start)
		place_look(w, TRACK_SPAN, at, start, start, timeout_span, &slot->deadline);
}

#endif
