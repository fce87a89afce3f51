/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The trackers irq and softirq. What is pending belongs to one CPU and never
 * leaves it, so each CPU has slots of its own, and no table is shared.
 *
 * A CPU can be in several at once: a handler interrupts a softirq, a handler
 * that serves a chip with interrupts of its own calls their handlers. Handlers
 * of one shared line run one after the other. On a real-time kernel softirqs
 * run in threads, which may be preempted, but not moved; if another thread of
 * that CPU runs the same vector meanwhile, the thread's id tells them apart.
 */
#ifndef TAILCAM_IRQ_H
#define TAILCAM_IRQ_H

#include "histogram.h"
#include "outlier.h"
#include "timeout.h"

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

/* One element a possible CPU. */
ARRAY_MAP(interrupts, struct interrupt_slots);

static __always_inline struct interrupt_slots *interrupts_of(u32 cpu)
{
	return bpf_map_lookup_elem(&interrupts, &cpu);
}

/* Notes an entry. One of the same key is left over from an exit that was not seen. */
static __always_inline void slot_enter(struct interrupt_slot *slots, u64 key, struct task_struct *current, void *action,
				       u32 tracker, struct cpu_state *me, u64 now)
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
static __always_inline struct interrupt_slot *slot_find(struct interrupt_slot *slots, u64 key)
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
static __always_inline bool slot_leave(struct interrupt_slot *s, u64 now, u64 floor, u64 *timed_out)
{
	bool slow = (s64)(now - s->start_ns) >= (s64)floor;

	if (slow)
		*timed_out = deadline_take(&s->start_ns, &s->deadline);
	else
		*(volatile u64 *)&s->start_ns = 0;
	return slow;
}

/* The stacks are those of what was interrupted. */
static __always_inline void interrupt_emit(void *ctx, struct scratch *s)
{
	struct outlier *out = &s->out;
	long size;

	if (s->wants_kernel) {
		size = bpf_get_stack(ctx, out->kernel, sizeof(out->kernel), 0);
		out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (s->wants_user) {
		size = bpf_get_stack(ctx, out->user, sizeof(out->user), BPF_F_USER_STACK);
		out->user_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	outlier_emit(s);
}

/* An id for a handler's name, for the daemon's verdict on it. */
static __always_inline u64 handler_hash(const char *name)
{
	const u64 *words = (const u64 *)name;
	u64 h = 0;

#pragma unroll
	for (int i = 0; i < HANDLER_NAME_LEN / 8; i++) {
		h = (h ^ words[i]) * HANDLER_HASH_FACTOR;
		h ^= h >> HANDLER_HASH_SHIFT;
	}
	return h;
}

/* -------------------------------------------------------------------- irq */

static __always_inline void irq_begin(u32 irq, struct irqaction *action, struct task_struct *current, u32 cpu,
				      struct cpu_state *me, u64 now)
{
	struct interrupt_slots *mine = interrupts_of(cpu);

	if (mine)
		slot_enter(mine->irq, irq, current, action, TRACK_IRQ, me, now);
}

/* The floor is passed. Who was interrupted has no part in it, so self_pid is not asked for. */
static __always_inline void irq_outlier(void *ctx, u32 irq, struct irqaction *action, struct task_struct *current,
					u64 start, u64 timed_out, u64 now, u32 cpu)
{
	struct scratch *s = outlier_begin(TRACK_IRQ, cpu, start, now);
	struct irq_extra *extra;

	if (!s)
		return;
	s->timed_out = timed_out;
	extra = (struct irq_extra *)s->out.extra;
	outlier_task(s, current);
	s->out.entry_cpu = cpu;
	extra->irq = s->facts.irq = irq;
	bpf_probe_read_kernel_str(extra->name, sizeof(extra->name), action->name);
	s->facts.handler = handler_hash(extra->name);
	if (evaluate(s, TRACK_IRQ, now - start))
		interrupt_emit(ctx, s);
}

/* Counts its delay. */
static __always_inline void irq_histogram(u32 irq, struct irqaction *action, struct task_struct *current, u32 cpu,
					  u64 now, u64 delay)
{
	struct irq_extra *extra;
	struct scratch *s;
	u32 needs;

	histogram_delay(TRACK_IRQ, cpu, delay, ALONE);
	s = histogram_facts(TRACK_IRQ, cpu, &needs);
	if (!s)
		return;
	histogram_task(&s->facts, current, needs);
	s->facts.irq = irq;
	if (needs & NEED_HANDLER) {
		extra = (struct irq_extra *)s->out.extra;
		__builtin_memset(extra, 0, sizeof(*extra));
		bpf_probe_read_kernel_str(extra->name, sizeof(extra->name), action->name);
		s->facts.handler = handler_hash(extra->name);
	}
	histogram_evaluate(s, TRACK_IRQ, cpu, now, delay);
}

static __always_inline void irq_end(void *ctx, u32 irq, struct irqaction *action, struct task_struct *current, u32 cpu,
				    struct cpu_state *me, u64 now)
{
	struct interrupt_slots *mine = interrupts_of(cpu);
	struct interrupt_slot *slot = mine ? slot_find(mine->irq, irq) : NULL;
	u64 start, timed_out = 0;
	bool slow;

	if (!slot)
		return;
	start = slot->start_ns;
	slow = slot_leave(slot, now, floor_irq[irq & (IRQ_CLASSES - 1)], &timed_out);
	if (me)
		me->seen[TRACK_IRQ]++;
	irq_histogram(irq, action, current, cpu, now, now - start);
	if (slow)
		irq_outlier(ctx, irq, action, current, start, timed_out, now, cpu);
}

/* ---------------------------------------------------------------- softirq */

static __always_inline u64 softirq_key(u32 vector, struct task_struct *current)
{
	return (u64)vector << 32 | (u32)current->pid;
}

/* The floor is passed. */
static __noinline void softirq_outlier(void *ctx, u32 vector_phase, u64 start, u64 timed_out, u64 now)
{
	u32 vector = vector_phase >> 1, phase = vector_phase & 1;
	u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = outlier_begin(TRACK_SOFTIRQ, cpu, start, now);
	struct irq_extra *extra;

	if (!s)
		return;
	s->timed_out = timed_out;
	extra = (struct irq_extra *)s->out.extra;
	outlier_task(s, bpf_get_current_task_btf());
	s->out.entry_cpu = cpu;
	extra->vector = vector;
	extra->phase = phase;
	s->facts.vector = 1 << (vector & (SOFTIRQS - 1));
	s->facts.phase = 1 << (phase & 1);
	if (evaluate(s, TRACK_SOFTIRQ, now - start))
		interrupt_emit(ctx, s);
}

/* Ends what is in slot: counts its delay, and looks whether it is past the floor. */
static __always_inline void softirq_delay(void *ctx, u32 vector, u32 phase, struct interrupt_slot *slot,
					  struct task_struct *current, u32 cpu, struct cpu_state *me, u64 now)
{
	u64 start = slot->start_ns, timed_out = 0;
	bool slow = slot_leave(slot, now, floor_softirq[phase][vector], &timed_out);
	struct scratch *s;
	u32 needs;

	if (me)
		me->seen[TRACK_SOFTIRQ]++;
	histogram_delay(TRACK_SOFTIRQ, cpu, now - start, ALONE);
	s = histogram_facts(TRACK_SOFTIRQ, cpu, &needs);
	if (s) {
		histogram_task(&s->facts, current, needs);
		s->facts.vector = 1 << vector;
		s->facts.phase = 1 << phase;
		histogram_evaluate(s, TRACK_SOFTIRQ, cpu, now, now - start);
	}
	if (slow)
		softirq_outlier(ctx, vector << 1 | phase, start, timed_out, now);
}

/* A second raise before the softirq runs changes nothing: its work is done by the same run. */
static __always_inline void softirq_raised(u32 vector)
{
	struct interrupt_slots *mine;
	struct interrupt_slot *s;

	vector &= SOFTIRQS - 1;
	if (floor_softirq[PHASE_RAISE][vector] == NEVER)
		return;
	mine = interrupts_of(bpf_get_smp_processor_id());
	if (!mine)
		return;
	s = &mine->raised[vector];
	if (s->start_ns)
		return;
	s->key = vector;
	barrier();
	*(volatile u64 *)&s->start_ns = bpf_ktime_get_ns();
}

static __always_inline void softirq_begin(void *ctx, u32 vector, struct task_struct *current, u32 cpu,
					  struct cpu_state *me, u64 now)
{
	struct interrupt_slots *mine = interrupts_of(cpu);

	if (!mine)
		return;
	vector &= SOFTIRQS - 1;
	slot_enter(mine->softirq, softirq_key(vector, current), current, NULL, TRACK_SOFTIRQ, me, now);
	if (!track_softirq_raise)
		return;
	if (mine->raised[vector].start_ns)
		softirq_delay(ctx, vector, PHASE_RAISE, &mine->raised[vector], current, cpu, me, now);
}

static __always_inline void softirq_end(void *ctx, u32 vector, struct task_struct *current, u32 cpu,
					struct cpu_state *me, u64 now)
{
	struct interrupt_slots *mine = interrupts_of(cpu);
	struct interrupt_slot *slot;

	vector &= SOFTIRQS - 1;
	slot = mine ? slot_find(mine->softirq, softirq_key(vector, current)) : NULL;
	if (slot)
		softirq_delay(ctx, vector, PHASE_RUN, slot, current, cpu, me, now);
}

#endif
