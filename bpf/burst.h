/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A threshold that follows the load lags behind it by a second or two. If all
 * delays jump over it at once, that is a shift and not a thousand outliers: no
 * more than BURST may fire at once, and BURST a second after that. What is
 * twice as bad as the others that pass the threshold now is an outlier of the
 * shifted load: it may fire as long as no more than two BURST did. The others
 * are counted as held back.
 */
#ifndef TAILCAM_BURST_H
#define TAILCAM_BURST_H

#include "state.h"

#define BURST 32
#define BURST_EACH_NS (1000000000ULL / BURST)

/* Whether an adaptive rule may fire now. */
static __always_inline bool burst_allows(struct rule_state *state, u64 now, u64 delay)
{
	u64 level = state->burst_full <= now ? delay : state->burst_level;
	u64 room = (delay / 2 >= level ? 2 * BURST : BURST) * BURST_EACH_NS;

	state->burst_level = level - level / 16 + delay / 16; /* another CPU's may be lost: it is an average */
	for (int i = 0; i < 4; i++) { /* another CPU may take from the bucket at the same time */
		u64 full = state->burst_full;
		u64 next = (full > now ? full : now) + BURST_EACH_NS;

		if (next > now + room)
			break;
		if (__sync_val_compare_and_swap(&state->burst_full, full, next) == full)
			return true;
	}
	__sync_fetch_and_add(&state->held_back, 1);
	return false;
}

#endif
