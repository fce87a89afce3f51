/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The tick: some timer interrupt, every 8 ms, that looks for pending work which
 * is too old. First it collects the places that are due (look.h), then it holds
 * each against the rules (expire.h). Both at once would be a deeper nest of
 * calls than the kernel's verifier allows (MAX_CALL_FRAMES).
 */
#ifndef TAILCAM_TICK_H
#define TAILCAM_TICK_H

#include "expire.h"
#include "irq.h"
#include "look.h"

#define TICK_NS 8000000

#include "irq_tick.h"
#include "pair_expire.h"
#include "span_expire.h"

/*
 * A timer of any kind has expired on this CPU. There are many on a busy
 * machine; for an idle one user space keeps one going.
 */
static __always_inline void tick(u64 now, u32 cpu)
{
	struct tick_walk w = {.now = now, .cpu = cpu};

	if (now < ticker.next_ns)
		return;
	if (__sync_val_compare_and_swap(&ticker.busy, 0, 1))
		return; /* another CPU is at it */
	ticker.next_ns = now + TICK_NS;
	ticker.ticks++;
	bpf_loop(TABLES * SEGMENTS, segment_step, &w, 0);
	if (w.due)
		bpf_loop(w.due, expire_step, &w, 0);
	if (w.due && (s64)timeout_least[TABLE_PAIRS] != (s64)NEVER)
		bpf_loop(w.due, expire_pair_step, &w, 0);
	if (track_span && w.due && (s64)timeout_least[TABLE_SPANS] != (s64)NEVER)
		bpf_loop(w.due, expire_span_step, &w, 0);
	if (track_irq || track_softirq)
		interrupts_tick(&w);
	__sync_lock_test_and_set(&ticker.busy, 0);
}

#endif
