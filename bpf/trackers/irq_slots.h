/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The slots of the trackers irq and softirq: each CPU has its own. */
#ifndef TAILCAM_TRACKER_IRQ_SLOTS_H
#define TAILCAM_TRACKER_IRQ_SLOTS_H

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

/* How many may be inside each other on one CPU; more are counted as table_full. */
#define NESTED 4

/* A handler or softirq that runs, or a softirq that waits to: one cache line. */
struct interrupt_slot {
	u64 start_ns; /* 0: free; written last at the entry, first at the exit */
	u64 key;      /* irq; softirq that runs: vector << 32 | tid; that waits: vector */
	u64 task;     /* address of the interrupted task; 0 while it waits */
	u64 action;   /* irq: address of struct irqaction, which stays while its handler runs */
	struct deadline deadline;
};

/* One CPU's; written by that CPU only. Others may look for what is stuck. */
struct interrupt_slots {
	struct interrupt_slot irq[NESTED];
	struct interrupt_slot softirq[NESTED];
	struct interrupt_slot raised[SOFTIRQS];
};

/* Each CPU's slots; written by that CPU, read by the tick. Sized by the daemon: CPUs. */
ARRAY_MAP(interrupts, struct interrupt_slots);

static __always_inline struct interrupt_slots *interrupts_of(u32 cpu)
{
	return bpf_map_lookup_elem(&interrupts, &cpu);
}

/* Notes an entry. One of the same key is left over from an exit that was not seen. */
static __always_inline void interrupt_entry(struct interrupt_slot *slots, u64 key, struct task_struct *current,
					    void *action, u32 tracker, struct cpu_state *me, u64 now)
{
#pragma unroll
	for (int i = 0; i < NESTED; i++) {
		struct interrupt_slot *s = &slots[i];

		if (s->start_ns) {
			if (s->key != key)
				continue;
			if (me)
				__sync_fetch_and_add(&me->replaced[tracker], 1);
		}
		s->key = key;
		s->task = (u64)current;
		s->action = (u64)action;
		barrier();
		*(volatile u64 *)&s->start_ns = now;
		return;
	}
	if (me)
		__sync_fetch_and_add(&me->table_full[tracker], 1);
}

/* The slot that the entry of key took; NULL: it was not seen. */
static __always_inline struct interrupt_slot *interrupt_find(struct interrupt_slot *slots, u64 key)
{
#pragma unroll
	for (int i = 0; i < NESTED; i++) {
		struct interrupt_slot *s = &slots[i];

		if (s->start_ns && s->key == key)
			return s;
	}
	return NULL;
}

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
_Static_assert(sizeof(struct interrupt_slots) == INTERRUPT_SLOTS * sizeof(struct interrupt_slot), "no other members");

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
