/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The first half of a chain: interrupts, timers and softirqs. Each CPU knows what
 * chain belongs to what it does now (interrupt over softirq over task).
 */
#ifndef TAILCAM_TRACKER_CHAIN_IRQ_H
#define TAILCAM_TRACKER_CHAIN_IRQ_H

#include "trackers/chain_table.h"

/*
 * The chain of the interrupt. Its stage is written when it is needed: most
 * interrupts raise nothing and wake no one.
 */
static __always_inline struct chain *chain_of_irq(struct chain_cpu *me, u32 cpu)
{
	struct chain *c = &me->irq;

	if (!c->origin_ns)
		return NULL;
	if (!c->stages) {
		c->irq = me->irq_number;
		chain_add(c, CHAIN_IRQ, cpu, c->origin_ns, me->irq_number, 0);
		bpf_probe_read_kernel_str(c->stage[0].name, sizeof(c->stage[0].name), (void *)me->irq_name);
	}
	return c;
}

/* The same of the timer, which may have expired within an interrupt that has a handler. */
static __always_inline struct chain *chain_of_timer(struct chain_cpu *me, u32 cpu)
{
	struct chain *c = &me->timer;

	if (!c->origin_ns)
		return NULL;
	if (!c->stages) {
		if (me->in_irq && chain_of_irq(me, cpu)) {
			chain_copy(c, &me->irq);
			c->from |= CHAIN_FROM_HRTIMER;
		}
		chain_add(c, CHAIN_TIMER, cpu, me->timer_ns, 0, 0);
	}
	return c;
}

/* The chain that belongs to what this CPU does just now; NULL: none. */
static __always_inline struct chain *chain_here(struct chain_cpu *me, u32 tid, u32 cpu)
{
	u32 index;

	if (me->in_timer)
		return chain_of_timer(me, cpu);
	if (me->in_irq)
		return chain_of_irq(me, cpu);
	/* On real-time kernels softirqs run in threads, which others may preempt. */
	if (me->in_softirq && me->softirq_tid == tid) {
		struct chain *c;

		index = me->softirq_index;
		barrier_var(index);
		if (index >= 2 * CHAIN_VECTORS)
			return NULL;
		c = &me->raised[index];
		return c->origin_ns ? c : NULL;
	}
	if (me->index && me->tid == tid) {
		struct chain_slot *slot = chain_slot_at(me->index - 1);

		return slot && slot->start_ns ? &slot->chain : NULL;
	}
	return NULL;
}

static __always_inline void chain_irq_entry(u32 cpu, int irq, struct irqaction *action, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);

	/* A chip with interrupts of its own calls their handlers from its own. */
	if (!me || me->in_irq++)
		return;
	chain_init(&me->irq, CHAIN_FROM_IRQ, now);
	me->irq_number = irq;
	bpf_probe_read_kernel(&me->irq_name, sizeof(me->irq_name), &action->name);
}

static __always_inline void chain_irq_exit(u32 cpu)
{
	struct chain_cpu *me = chain_this_cpu(cpu);

	if (me && me->in_irq)
		me->in_irq--;
}

/* Timers that expire in a softirq are a part of it. */
static __always_inline void chain_timer_entry(u32 cpu, struct hrtimer *timer, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);

	if (!me || timer_is_soft(timer))
		return;
	chain_init(&me->timer, CHAIN_FROM_HRTIMER, now);
	if (me->in_irq && me->irq.origin_ns)
		me->timer.origin_ns = me->irq.origin_ns;
	me->timer_ns = now;
	me->in_timer = 1;
}

static __always_inline void chain_timer_exit(u32 cpu)
{
	struct chain_cpu *me = chain_this_cpu(cpu);

	if (me)
		me->in_timer = 0;
}

/*
 * A softirq is raised: from now on it waits to run. The first raise counts. A
 * softirq that raises itself has new work: what comes in under load would
 * otherwise seem to wait since the first packet.
 */
static __always_inline void chain_softirq_raise(u32 vec, u32 cpu, struct cpu_state *state, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	struct task_struct *current = bpf_get_current_task_btf();
	struct chain *from, *to;
	u32 tid = current->pid;
	u32 index;

	if (!me || vec >= CHAIN_VECTORS)
		return;
	index = vec * 2 + ((me->flip >> vec) & 1);
	barrier_var(index);
	if (index >= 2 * CHAIN_VECTORS)
		return;
	to = &me->raised[index];
	if (to->origin_ns && chain_age(me->raised_ns[vec], now) < CHAIN_STALE_NS)
		return;
	me->raised_ns[vec] = now;
	from = chain_here(me, tid, cpu);
	if (!me->in_irq && !me->in_timer &&
	    (vec == CHAIN_VEC_HRTIMER || (me->in_softirq == vec + 1 && me->softirq_tid == tid)))
		from = NULL;
	if (!from) {
		/* Soft timers: their interrupt raises this one, and nothing else tells of it. */
		chain_init(to, vec == CHAIN_VEC_HRTIMER ? CHAIN_FROM_HRTIMER : CHAIN_FROM_SOFTIRQ, now);
		if (!to->origin_ns)
			return;
	} else if (from->stages + 2 > CHAIN_STAGES) {
		from->truncated = 1;
		to->origin_ns = 0;
		if (state)
			state->chain_truncated++;
		return;
	} else {
		chain_copy(to, from);
	}
	chain_add(to, CHAIN_RAISE, cpu, now, vec, 0);
}

static __always_inline void chain_softirq_entry(u32 vec, u32 tid, u32 cpu, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	struct chain *c;
	u32 index;

	if (!me || vec >= CHAIN_VECTORS)
		return;
	/* An interrupt from here on that raises it again means its next run. */
	index = vec * 2 + ((me->flip >> vec) & 1);
	__sync_fetch_and_xor(&me->flip, 1ULL << vec);
	barrier_var(index);
	if (index >= 2 * CHAIN_VECTORS)
		return;
	c = &me->raised[index];
	if (!c->origin_ns)
		chain_init(c, vec == CHAIN_VEC_HRTIMER ? CHAIN_FROM_HRTIMER : CHAIN_FROM_SOFTIRQ, now);
	if (c->origin_ns) {
		c->vectors |= 1 << vec;
		chain_add(c, CHAIN_SOFTIRQ, cpu, now, vec, 0);
	}
	me->softirq_index = index;
	me->softirq_tid = tid;
	me->in_softirq = vec + 1;
}

static __always_inline void chain_softirq_exit(u32 cpu)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	u32 index;

	if (!me)
		return;
	me->in_softirq = 0;
	index = me->softirq_index;
	barrier_var(index);
	if (index < 2 * CHAIN_VECTORS)
		me->raised[index].origin_ns = 0;
}

#endif
