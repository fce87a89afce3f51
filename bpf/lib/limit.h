/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What keeps a rule from firing too often: the rate limit, the bursts of adaptive
 * rules, the records of a ratchet, and the limiter of snapshots.
 */
#ifndef TAILCAM_LIMIT_H
#define TAILCAM_LIMIT_H

#include "abi/rule.h"
#include "lib/state.h"

/* Rate limit of each rule's outliers: one each …, after a burst of room / each; 0: none. */
const volatile u64 outlier_each_ns;
const volatile u64 outlier_room_ns;

/* --------------------------------------------------------------------- rate */

/*
 * Takes a token (GCRA: *full is when the bucket is full again). The token is
 * taken first and given back if there was none: a failed compare-and-swap
 * would refuse outliers that many CPUs have at once.
 */
static __always_inline bool bucket_take(u64 *full, u64 now)
{
	u64 was = *(volatile u64 *)full;
	u64 most = now + outlier_room_ns;

	if (was < now)
		__sync_val_compare_and_swap(full, was, now); /* or another CPU did */
	else if (was + outlier_each_ns > most)
		return false;
	if (__sync_fetch_and_add(full, outlier_each_ns) + outlier_each_ns <= most)
		return true;
	__sync_fetch_and_add(full, -outlier_each_ns);
	return false;
}

/*
 * Whether the rule may have another outlier now. What the daemon must decide
 * has a bucket of its own: it can neither pass the limit nor starve what is decided.
 */
static __always_inline bool rate_allows(struct rule_state *state, u64 now, bool undecided)
{
	if (!outlier_each_ns || bucket_take(undecided ? &state->asked_ns : &state->bucket_ns, now))
		return true;
	__sync_fetch_and_add(&state->limited, 1);
	return false;
}

/* ----------------------------------------------------------- adaptive rules */

/*
 * A threshold that follows the load lags behind it by a second or two. If all
 * delays jump over it at once, that is a shift and not a thousand outliers: no
 * more than BURST may fire at once, and BURST a second after that. What is
 * twice as bad as the others that pass the threshold now is an outlier of the
 * shifted load: it may fire as long as no more than two BURST did. The others
 * are counted as held back.
 */
#define BURST 32
#define BURST_EACH_NS (NSEC_PER_SEC / BURST)

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

/* ----------------------------------------------------------------- ratchets */

/* A rule with a ratchet fires for records only: for what is worse than all that it has fired for. */
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

/* ---------------------------------------------------------------- snapshots */

#define CLOCKS_NS 1000000000ULL /* an outlier may be this much older than one that was before it in the bucket */

/*
 * May this rule have a snapshot now? A GCRA: limit_ns is the time at which
 * the bucket is empty again. A refusal changes nothing but its count, so a
 * steady stream of outliers cannot starve itself. An outlier that the daemon
 * must decide may have one too, but leaves the bucket alone: if it is not
 * wanted after all, it must not cost the rule its next snapshot. The bucket
 * outlives a reload: a limit that is too far away is of a longer interval.
 */
static __always_inline bool snapshot_allows(struct rule *r, struct rule_state *state, u64 now, bool decided)
{
	for (int i = 0; i < 4; i++) { /* another CPU may take from the bucket at the same time */
		u64 limit = state->limit_ns;
		u64 most = now + r->allow_ns + r->every_ns + CLOCKS_NS;
		u64 full = limit <= now || limit > most ? now : limit;

		if (full > now + r->allow_ns)
			return false;
		if (!decided || __sync_val_compare_and_swap(&state->limit_ns, limit, full + r->every_ns) == limit)
			return true;
	}
	return false;
}

#endif
