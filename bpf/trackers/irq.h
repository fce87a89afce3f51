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
#ifndef TAILCAM_TRACKER_IRQ_H
#define TAILCAM_TRACKER_IRQ_H

#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/stacks.h"
#include "lib/timeout_scan.h"
#include "trackers/irq_slots.h"

/* The stacks are those of what was interrupted. */
static __always_inline void interrupt_emit(void *ctx, struct scratch *s)
{
	stacks_of_current(ctx, s);
	outlier_emit(s);
}

/* ---------------------------------------------------------------------- irq */

/* The floor is passed. Who was interrupted has no part in it, so self_pid is not asked for. */
static __always_inline void irq_outlier(void *ctx, u32 irq, struct irqaction *action, struct task_struct *current,
					u64 start, u64 timed_out, u64 now, u32 cpu)
{
	struct scratch *s = outlier_init(TRACK_IRQ, cpu, start, now);
	struct irq_extra *extra;

	if (!s)
		return;
	s->timed_out = timed_out;
	extra = (struct irq_extra *)s->out.extra;
	outlier_task(s, current);
	s->out.entry_cpu = cpu;
	extra->irq = s->facts.irq = irq;
	bpf_probe_read_kernel_str(extra->name, sizeof(extra->name), action->name);
	s->facts.name = name_hash(extra->name);
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
	if (needs & NEED_NAME) {
		extra = (struct irq_extra *)s->out.extra;
		__builtin_memset(extra, 0, sizeof(*extra));
		bpf_probe_read_kernel_str(extra->name, sizeof(extra->name), action->name);
		s->facts.name = name_hash(extra->name);
	}
	histogram_evaluate(s, TRACK_IRQ, cpu, now, delay);
}

/* Ends what is in slot. */
static __always_inline void irq_exit(void *ctx, u32 irq, struct irqaction *action, struct interrupt_slot *slot,
				     struct task_struct *current, u32 cpu, u64 now)
{
	struct cpu_state *me = this_cpu(cpu);
	u64 start = slot->start_ns, timed_out = 0;
	bool slow = interrupt_exit(slot, now, floor_irq[irq & (IRQ_CLASSES - 1)], &timed_out);

	if (me)
		me->seen[TRACK_IRQ]++;
	irq_histogram(irq, action, current, cpu, now, now - start);
	if (slow)
		irq_outlier(ctx, irq, action, current, start, timed_out, now, cpu);
}

/* ------------------------------------------------------------------ softirq */

/* Number of the scratch: the start of a softirq may preempt the end of another, or the other way round. */
static __always_inline u32 softirq_scratch(u32 phase)
{
	return phase == PHASE_RUN ? TRACK_SOFTIRQ : SCRATCH_RAISE;
}

/* The floor is passed. */
static __noinline void softirq_outlier(void *ctx, u32 vector_phase, u64 start, u64 timed_out, u64 now)
{
	u32 vector = vector_phase >> 1, phase = vector_phase & 1;
	u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = outlier_init_in(softirq_scratch(phase), TRACK_SOFTIRQ, cpu, start, now);
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

/* Ends what is in slot: counts its delay, and compares it with the floor. */
static __always_inline void softirq_delay(void *ctx, u32 vector, u32 phase, struct interrupt_slot *slot,
					  struct task_struct *current, u32 cpu, u64 now)
{
	struct cpu_state *me = this_cpu(cpu);
	u64 start = slot->start_ns, timed_out = 0;
	bool slow = interrupt_exit(slot, now, floor_softirq[phase][vector], &timed_out);
	struct scratch *s;
	u32 needs;

	if (me)
		me->seen[TRACK_SOFTIRQ]++;
	histogram_delay(TRACK_SOFTIRQ, cpu, now - start, ALONE);
	s = histogram_facts_at(softirq_scratch(phase), TRACK_SOFTIRQ, cpu, &needs);
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
static __always_inline void softirq_wait_entry(u32 vector)
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

/* It begins: its wait is over, if a rule wants to know of it. */
static __always_inline void softirq_run_entry(void *ctx, u32 vector, struct interrupt_slots *mine,
					      struct task_struct *current, u32 cpu, u64 now)
{
	if (mine->raised[vector].start_ns)
		softirq_delay(ctx, vector, PHASE_RAISE, &mine->raised[vector], current, cpu, now);
}

/* ----------------------------------------------------------------- timeouts */

/* Nothing can be due before, as with a chunk of a pending table. Tick only. */
volatile struct chunk interrupts_chunk;

static long interrupt_scan(u32 index, struct tick_walk *w)
{
	struct interrupt_slot *slot = interrupt_slot_at(index);
	u32 i = INDEX_SLOT(index);
	u64 start;

	if (!slot)
		return 0;
	start = *(volatile u64 *)&slot->start_ns;
	if (start)
		timeout_check(w, i < NESTED ? TRACK_IRQ : TRACK_SOFTIRQ, index, start, start,
			      interrupt_timeout(i, slot->key), &slot->deadline);
	return 0;
}

static __always_inline void expire_interrupt(struct tick_walk *w, u32 tracker, u32 index)
{
	struct interrupt_slot *slot = interrupt_slot_at(index);
	u32 cpu = INDEX_CPU(index);
	struct irqaction *action;
	struct irq_extra *extra;
	struct task_struct *task;
	struct scratch *s;
	u64 start, key;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expiry_start(w, tracker, start, start, &slot->deadline);
	if (!s)
		return;
	key = slot->key;
	task = (struct task_struct *)slot->task;
	if (task)
		read_task(s, task, BPF_CORE_READ(task, pid));
	s->out.cpu = s->out.entry_cpu = s->facts.cpu = cpu;
	extra = (struct irq_extra *)s->out.extra;
	if (tracker == TRACK_IRQ) {
		action = (struct irqaction *)slot->action;
		extra->irq = s->facts.irq = key;
		bpf_probe_read_kernel_str(extra->name, sizeof(extra->name), BPF_CORE_READ(action, name));
		s->facts.name = name_hash(extra->name);
	} else {
		extra->phase = INDEX_SLOT(index) < 2 * NESTED ? PHASE_RUN : PHASE_RAISE;
		extra->vector = extra->phase == PHASE_RUN ? key >> 32 : key;
		s->facts.vector = 1 << (extra->vector & (SOFTIRQS - 1));
		s->facts.phase = 1 << extra->phase;
	}
	evaluate(s, tracker, w->now - start);
	if (expiry_claim(s, &slot->start_ns, &slot->deadline, start, start))
		outlier_emit(s); /* without stacks: nobody sees those of a CPU that is busy */
}

/* A pass of its own, with a frame of its own: that of expire_step fills the stack that 6.1 allows. */
static long expire_interrupt_step(u32 i, struct tick_walk *w)
{
	struct due_slot *p = bpf_map_lookup_elem(&due_slots, &i);

	if (!p)
		return 1;
	expire_interrupt(w, p->tracker, p->index);
	return 0;
}

/* Looks at all CPUs, unless nothing can be due, and reports what is. */
static __always_inline void interrupts_tick(struct tick_walk *w)
{
	u32 gen = generation;

	if (timeout_interrupts == NEVER || (interrupts_chunk.due_ns > w->now && interrupts_chunk.generation == gen))
		return;
	w->force = interrupts_chunk.generation != gen;
	w->next = w->now + timeout_interrupts;
	w->due = 0;
	bpf_loop(interrupt_cpus << SLOT_BITS, interrupt_scan, w, 0);
	interrupts_chunk.generation = gen;
	interrupts_chunk.due_ns = w->due ? w->now : w->next;
	if (w->due)
		bpf_loop(w->due, expire_interrupt_step, w, 0);
}

#endif
