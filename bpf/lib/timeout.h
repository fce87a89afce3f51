/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Timeouts. The tick (tick.h) finds pending work that has become too old, and
 * notes in its slot which rules have fired, so that its exit knows. It runs on
 * one CPU at a time, and the exit may run on another, so both must agree on what counts:
 *
 *   tick: fired |= bits, then check that the work is still pending
 *   exit: the work is pending no more, then take all bits
 *
 * with a full barrier in the middle of each. So at least one sees the other.
 * A tick that comes too late takes its bits back; what the exit has taken
 * before that has fired, what it has not never did.
 */
#ifndef TAILCAM_TIMEOUT_H
#define TAILCAM_TIMEOUT_H

#include "lib/state.h"

const volatile bool timeouts; /* a rule has one */

/* What has fired for work that began at start, and that the caller has taken. */
static __always_inline u64 deadline_fired(struct deadline *d, u64 start)
{
	u64 fired;

	if (!timeouts)
		return 0;
	fired = __sync_lock_test_and_set(&d->fired, 0);
	return *(volatile u64 *)&d->for_ns == start ? fired : 0;
}

/*
 * What has fired for the work that began at start, which its slot holds until
 * the end. Ends it: the slot reads as empty from here on.
 */
static __always_inline u64 deadline_take(u64 *slot_start, struct deadline *d)
{
	u64 start = *slot_start;

	*(volatile u64 *)slot_start = 0;
	return deadline_fired(d, start);
}

/* Begins the account of work that the tick has not met before. Tick only. */
static __always_inline void deadline_reset(struct deadline *d, u64 start)
{
	if (d->for_ns == start)
		return;
	__sync_lock_test_and_set(&d->fired, 0);
	d->seen_ns = 0;
	d->due_ns = 0;
	*(volatile u64 *)&d->for_ns = start;
}

/* Claims bits for the work that began at start; those that count. Tick only. */
static __always_inline u64 deadline_fire(u64 *slot_start, struct deadline *d, u64 start, u64 bits)
{
	__sync_fetch_and_or(&d->fired, bits);
	if (*(volatile u64 *)slot_start == start)
		return bits;
	return bits & ~__sync_fetch_and_and(&d->fired, ~bits);
}

#endif
