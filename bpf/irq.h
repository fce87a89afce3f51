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

/* How many may be inside each other on one CPU; more are counted as table_full. */
#define NESTED 4

/* A handler or softirq that runs, or a softirq that waits to: one cache line. */
struct interrupt_slot {
	u64 start_ns; /* 0: free; written last at the entry, first at the exit */
	u64 key;      /* irq; softirq that runs: vector << 32 | tid; that waits: vector */
	u64 task;     /* address of the interrupted task; 0 while it waits */
	u64 action;   /* irq: address of struct irqaction, which stays while its handler runs */
	u64 deadline[4];
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

/* When the entry of key was; frees its slot. 0: it was not seen. */
static __always_inline u64 slot_leave(struct interrupt_slot *slots, u64 key)
{
#pragma unroll
	for (int i = 0; i < NESTED; i++) {
		struct interrupt_slot *s = &slots[i];
		u64 start = s->start_ns;

		if (!start || s->key != key)
			continue;
		*(volatile u64 *)&s->start_ns = 0;
		return start;
	}
	return 0;
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
		h = (h ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
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
					u64 start, u64 now, u32 cpu)
{
	struct scratch *s = outlier_begin(TRACK_IRQ, cpu, start, now);
	struct irq_extra *extra;

	if (!s)
		return;
	extra = (struct irq_extra *)s->out.extra;
	outlier_task(s, current);
	s->out.entry_cpu = s->facts.cpu = cpu;
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
	s->facts.cpu = cpu;
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
	u64 start = mine ? slot_leave(mine->irq, irq) : 0;

	if (!start)
		return;
	if (me)
		me->seen[TRACK_IRQ]++;
	irq_histogram(irq, action, current, cpu, now, now - start);
	if ((s64)(now - start) >= (s64)floor_irq[irq & (IRQ_CLASSES - 1)])
		irq_outlier(ctx, irq, action, current, start, now, cpu);
}

/* ---------------------------------------------------------------- softirq */

static __always_inline u64 softirq_key(u32 vector, struct task_struct *current)
{
	return (u64)vector << 32 | (u32)current->pid;
}

/* The floor is passed. */
static __noinline void softirq_outlier(void *ctx, u32 vector, u32 phase, u64 start, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = outlier_begin(TRACK_SOFTIRQ, cpu, start, now);
	struct irq_extra *extra;

	if (!s)
		return;
	extra = (struct irq_extra *)s->out.extra;
	outlier_task(s, bpf_get_current_task_btf());
	s->out.entry_cpu = s->facts.cpu = cpu;
	extra->vector = vector;
	extra->phase = phase;
	s->facts.vector = 1 << (vector & (SOFTIRQS - 1));
	s->facts.phase = 1 << (phase & 1);
	if (evaluate(s, TRACK_SOFTIRQ, now - start))
		interrupt_emit(ctx, s);
}

/* Counts a delay, and looks whether it is past the floor. */
static __always_inline void softirq_delay(void *ctx, u32 vector, u32 phase, struct task_struct *current, u32 cpu,
					  struct cpu_state *me, u64 start, u64 now)
{
	struct scratch *s;
	u32 needs;

	if (me)
		me->seen[TRACK_SOFTIRQ]++;
	histogram_delay(TRACK_SOFTIRQ, cpu, now - start, ALONE);
	s = histogram_facts(TRACK_SOFTIRQ, cpu, &needs);
	if (s) {
		histogram_task(&s->facts, current, needs);
		s->facts.cpu = cpu;
		s->facts.vector = 1 << vector;
		s->facts.phase = 1 << phase;
		histogram_evaluate(s, TRACK_SOFTIRQ, cpu, now, now - start);
	}
	if ((s64)(now - start) >= (s64)floor_softirq[phase][vector])
		softirq_outlier(ctx, vector, phase, start, now);
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
	u64 raised;

	if (!mine)
		return;
	vector &= SOFTIRQS - 1;
	slot_enter(mine->softirq, softirq_key(vector, current), current, NULL, TRACK_SOFTIRQ, me, now);
	if (!track_softirq_raise)
		return;
	raised = mine->raised[vector].start_ns;
	if (!raised)
		return;
	*(volatile u64 *)&mine->raised[vector].start_ns = 0;
	softirq_delay(ctx, vector, PHASE_RAISE, current, cpu, me, raised, now);
}

static __always_inline void softirq_end(void *ctx, u32 vector, struct task_struct *current, u32 cpu,
					struct cpu_state *me, u64 now)
{
	struct interrupt_slots *mine = interrupts_of(cpu);
	u64 start;

	vector &= SOFTIRQS - 1;
	start = mine ? slot_leave(mine->softirq, softirq_key(vector, current)) : 0;
	if (start)
		softirq_delay(ctx, vector, PHASE_RUN, current, cpu, me, start, now);
}

#endif
