/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Floors and timeouts of the trackers irq and softirq, and how the tick finds what is pending. */
#ifndef TAILCAM_TRACKER_IRQ_SLOTS_H
#define TAILCAM_TRACKER_IRQ_SLOTS_H

#include "lib/interrupts.h"
#include "lib/timeout_scan.h"

const volatile bool track_irq;
const volatile bool track_softirq;
const volatile bool track_softirq_raise; /* a rule wants how long softirqs wait to run */
const volatile u32 interrupt_cpus;	 /* that have slots */

/* Floors and timeouts; written by the daemon. */
volatile u64 floor_irq[IRQ_CLASSES];
volatile u64 floor_softirq[PHASES][SOFTIRQS]; /* by phase, vector */
volatile u64 timeout_irq[IRQ_CLASSES];
volatile u64 timeout_softirq[PHASES][SOFTIRQS];
volatile u64 timeout_interrupts; /* the least of both */

/* Ends what is in s; true: it took at least as long as floor, *timed_out says which rules have fired. */
static __always_inline bool interrupt_exit(struct interrupt_slot *s, u64 now, u64 floor, u64 *timed_out)
{
	bool slow = (s64)(now - s->start_ns) >= (s64)floor;

	if (slow)
		*timed_out = deadline_take(&s->start_ns, &s->deadline);
	else
		*(volatile u64 *)&s->start_ns = 0;
	return slow;
}

/* A slot is a CPU's number and that of a slot within its struct interrupt_slots. */
#define SLOT_BITS 5
#define INDEX_CPU(index) ((index) >> SLOT_BITS)
#define INDEX_SLOT(index) ((index) & ((1 << SLOT_BITS) - 1))
#define INTERRUPT_SLOTS (2 * NESTED + SOFTIRQS)

_Static_assert(INTERRUPT_SLOTS <= 1 << SLOT_BITS, "places name every slot");
_Static_assert(__builtin_offsetof(struct interrupt_slots, sums) == INTERRUPT_SLOTS * sizeof(struct interrupt_slot),
	       "nothing stands between them");

/* The slot at a slot; NULL: there is none. */
static __always_inline struct interrupt_slot *interrupt_slot_at(u32 index)
{
	struct interrupt_slots *of = interrupts_of(INDEX_CPU(index));
	u32 i = INDEX_SLOT(index);

	barrier_var(i);
	if (!of || i >= INTERRUPT_SLOTS)
		return NULL;
	return &((struct interrupt_slot *)of)[i];
}

static __always_inline u64 interrupt_timeout(u32 i, u64 key)
{
	if (i < NESTED)
		return timeout_irq[key & (IRQ_CLASSES - 1)];
	if (i < 2 * NESTED)
		return timeout_softirq[PHASE_RUN][(key >> 32) & (SOFTIRQS - 1)];
	return timeout_softirq[PHASE_RAISE][key & (SOFTIRQS - 1)];
}

#endif
