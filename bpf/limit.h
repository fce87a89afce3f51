/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What one rule may take from the others. A token bucket per rule, asked
 * before stacks and the ring buffer, and a reserved share of the ring buffer.
 * Belongs to state.h.
 */
#ifndef TAILCAM_LIMIT_H
#define TAILCAM_LIMIT_H

#define BPF_RB_AVAIL_DATA 0

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

/*
 * Claims bytes of the ring buffer for a record of size bytes, before it is
 * reserved. An owner always has its share. Beyond it, it may use what all have
 * in common, so that the shares of the others stay free whatever it does.
 */
static __always_inline struct ring_use *ring_claim(u32 owner, u64 size)
{
	struct ring_use *u = bpf_map_lookup_elem(&ring_uses, &owner);
	u64 mine;

	if (!u)
		return NULL;
	size += RING_HEADER;
	mine = __sync_fetch_and_add(&u->sent, size) + size - *(volatile u64 *)&u->read;
	if ((s64)mine <= (s64)ring_share || bpf_ringbuf_query(&outliers, BPF_RB_AVAIL_DATA) + size <= ring_common)
		return u;
	__sync_fetch_and_add(&u->sent, -size);
	__sync_fetch_and_add(&u->refused, 1);
	return NULL;
}

/* Gives back what was claimed for a record that was not sent. */
static __always_inline void ring_unclaim(struct ring_use *u, u64 size)
{
	__sync_fetch_and_add(&u->sent, -(size + RING_HEADER));
	__sync_fetch_and_add(&u->refused, 1);
}

#endif
