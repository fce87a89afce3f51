/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A threshold that follows the load lags behind it by a second or two. If all
 * delays jump over it at once, that is a shift and not a thousand outliers:
 * no more than BURST may fire at once, and BURST a second after that. What is
 * twice as bad as all before it fires nevertheless: that is an outlier of the
 * shifted load, too. The others are counted as held back.
 */
#ifndef TAILCAM_BURST_H
#define TAILCAM_BURST_H

#include "state.h"

#define BURST 32
#define BURST_EACH_NS (1000000000ULL / BURST)

/* Whether an adaptive rule may fire now. */
static __always_inline bool burst_allows(struct rule_state *state, u64 now, u64 delay)
{
	for (int i = 0; i < 4; i++) { /* another CPU may take from the bucket at the same time */
		u64 full = state->burst_ns;
		u64 next = (full > now ? full : now) + BURST_EACH_NS;

		if (full <= now)
			state->burst_worst = 0;
		if (next > now + BURST * BURST_EACH_NS)
			break;
		if (__sync_val_compare_and_swap(&state->burst_ns, full, next) != full)
			continue;
		if (delay > state->burst_worst)
			state->burst_worst = delay;
		return true;
	}
	if (delay / 2 >= state->burst_worst) {
		state->burst_worst = delay;
		return true;
	}
	__sync_fetch_and_add(&state->held_back, 1);
	return false;
}

#endif
