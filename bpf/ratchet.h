/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A rule with a ratchet fires for records only: for what is worse than all that it has fired for. */
#ifndef TAILCAM_RATCHET_H
#define TAILCAM_RATCHET_H

#include "state.h"

#define RATCHET_TRIES 16

/*
 * Whether delay is a record, which counts from now on. Of several CPUs with the
 * same one, it is one's. After a try that fails, another CPU's record stands
 * that is higher than the one before.
 */
static __always_inline bool ratchet_claim(struct rule_state *state, u64 delay)
{
	for (int i = 0; i < RATCHET_TRIES; i++) {
		u64 record = *(volatile u64 *)&state->record_ns;

		if (delay <= record)
			return false;
		if (__sync_val_compare_and_swap(&state->record_ns, record, delay) == record)
			return true;
	}
	return false;
}

/* The same for a delay of which the daemon must decide first whether the rule wants it: it claims it then. */
static __always_inline bool ratchet_may_claim(struct rule_state *state, u64 delay)
{
	return delay > *(volatile u64 *)&state->record_ns;
}

#endif
