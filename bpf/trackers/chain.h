/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The chain tracker: one piece of work over all its stages, from the interrupt
 * that began it to the task that it was for. Each CPU knows what chain belongs
 * to what it does now (interrupt over softirq over task); a softirq that is
 * raised takes the chain along, and so does a task that is woken. Whoever
 * carries a chain has its own copy of the way so far, so branches need no
 * common memory; only how many tasks carry one origin is counted together.
 *
 * Tasks that carry a chain: claimed at the wake-up, by what carries one itself;
 * released when the task blocks again or dies. On the way are the slots where
 * a rule may want it: the switch to the task, its return to user space, its end.
 */
#ifndef TAILCAM_TRACKER_CHAIN_H
#define TAILCAM_TRACKER_CHAIN_H

#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/run_history.h"
#include "lib/stacks.h"
#include "trackers/chain_irq.h"
#include "trackers/chain_table.h"

/* -------------------------------------------------------------------- entry */

/* p is woken by what this CPU does just now. */
static __always_inline void chain_wake(struct task_struct *p, u32 cpu, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	struct task_struct *current = bpf_get_current_task_btf();
	struct cpu_state *state;
	struct chain_slot *slot;
	struct chain *from;
	int index;

	if (!me)
		return;
	from = chain_here(me, current->pid, cpu);
	if (!from)
		return;
	state = this_cpu(cpu);
	if (!state)
		return;
	if (chain_age(from->origin_ns, now) > chain_age_ns) {
		state->chain_truncated++;
		return;
	}
	if (task_on_cpu(p) && task_on_rq(p)) { /* on its CPU still: there will be no switch to it */
		state->chain_met++;
		return;
	}
	if (from->stages + 2 > CHAIN_STAGES || !chain_count(from)) {
		from->truncated = 1;
		state->chain_truncated++;
		return;
	}
	index = chain_claim(p, state, now);
	if (index < 0)
		return;
	slot = chain_slot_at(index);
	if (!slot)
		return;
	chain_copy(&slot->chain, from);
	chain_add_task(&slot->chain, CHAIN_WAKEUP, cpu, now, p);
	slot->phase = CHAIN_PHASE_WOKEN;
	slot->returned = 0;
	slot->woken_ns = now;
	*(volatile u64 *)&slot->start_ns = from->origin_ns;
}

/* ----------------------------------------------------------------- outliers */

/*
 * Three functions, one after the other, since calls nest too deep for the
 * kernel's stack otherwise. how is the end, and above that the state in which
 * the task blocks.
 */

/* What rules may ask; NULL: no rule may. */
static __noinline struct scratch *chain_facts(struct task_struct *p, struct chain_slot *slot, u64 how, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = outlier_init(TRACK_CHAIN, cpu, slot->start_ns, now);

	if (!s)
		return NULL;
	outlier_task(s, p);
	if (is_self(s->facts.pid))
		return NULL;
	if (!(p->flags & PF_KTHREAD))
		s->out.syscall = s->facts.syscall = task_syscall(p);
	s->facts.from = slot->chain.from;
	s->facts.end = 1 << (how & 3);
	s->facts.irq = slot->chain.irq;
	s->facts.vector = slot->chain.vectors;
	return s;
}

static __noinline u32 chain_wanted(struct scratch *s, u64 delay)
{
	return evaluate(s, TRACK_CHAIN, delay);
}

/* Evidence, and off it goes. p is current but for end run, where it gets the CPU next. */
static __noinline int chain_report(void *ctx, struct task_struct *p, struct chain_slot *slot, u64 how, u64 now)
{
	u32 end = (u32)how, cpu = bpf_get_smp_processor_id(), index = cpu * SCRATCHES + TRACK_CHAIN;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &index);
	struct cpu_state *me = this_cpu(cpu);
	struct outlier *out;
	long size;

	if (!s || !me)
		return 0;
	out = &s->out;
	slot->chain.end = end;
	bpf_probe_read_kernel(out->extra, sizeof(slot->chain), &slot->chain);
	out->state = how >> 32;
	out->wait_cpu = out->entry_cpu = cpu;
	if (end == CHAIN_END_RUN) {
		out->runnable_ns = chain_age(slot->woken_ns, now);
		outlier_runs(out, cpu, slot->woken_ns, now);
	}
	if (end != CHAIN_END_RUN) {
		stacks_of_current(ctx, s);
		context_of_current(out);
	} else {
		if (s->wants_kernel) {
			size = bpf_get_task_stack(p, out->kernel, sizeof(out->kernel), 0);
			out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
		}
		user_defer(s, p, me);
	}
	outlier_emit(s);
	return 0;
}

/* The floor is passed. */
static __always_inline void chain_outlier(void *ctx, struct task_struct *p, struct chain_slot *slot, u64 how, u64 now)
{
	struct scratch *s = chain_facts(p, slot, how, now);

	if (s && chain_wanted(s, chain_age(slot->start_ns, now)))
		chain_report(ctx, p, slot, how, now);
}

/* ----------------------------------------------------------------- switches */

/* prev leaves the CPU: its chain ends, or waits with it. */
static __always_inline void chain_switch_out(void *ctx, struct task_struct *prev, bool preempt, u32 prev_state, u32 cpu,
					     struct cpu_state *state, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	struct chain_slot *slot;
	u64 start;
	u32 kind;
	int index;

	if (!me)
		return;
	/* None of these can last over a switch: their end was not seen. */
	me->in_irq = 0;
	me->in_timer = 0;
	if (!me->index)
		return;
	index = me->index - 1;
	me->index = 0;
	slot = chain_slot_at(index);
	if (!slot || !state || me->tid != prev->pid)
		return;
	start = slot->start_ns;
	if (!start)
		return;
	if (prev_state & TASK_DEAD) {
		if (chain_finish(slot, index, start))
			__sync_fetch_and_add(&state->reclaimed, 1);
		return;
	}
	if (task_runnable(prev, preempt, prev_state))
		kind = CHAIN_PREEMPTED;
	else if (prev_state & TASK_RTLOCK_WAIT) /* a lock that spins on other kernels: not the end of its work */
		kind = CHAIN_LOCK;
	else
		kind = 0;
	if (!kind) {
		if (chain_age(start, now) >= floor_chain[CHAIN_END_BLOCK])
			chain_outlier(ctx, prev, slot, CHAIN_END_BLOCK | (u64)prev_state << 32, now);
		chain_finish(slot, index, start);
		return;
	}
	if (chain_age(start, now) > chain_age_ns) {
		if (chain_finish(slot, index, start))
			state->chain_ended++;
		return;
	}
	slot->phase = kind == CHAIN_LOCK ? CHAIN_PHASE_LOCK : CHAIN_PHASE_PREEMPTED;
	if (slot->chain.stages + 2 <= CHAIN_STAGES) {
		chain_add_task(&slot->chain, kind, cpu, now, prev);
	} else {
		/* No room for this and the stage after it: both count for the stage before. */
		slot->chain.truncated = 1;
		slot->phase |= CHAIN_PHASE_MERGED;
	}
}

/* next gets the CPU. */
static __always_inline void chain_switch_in(void *ctx, struct task_struct *next, u32 cpu, struct cpu_state *state,
					    u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	u32 tid = next->pid, phase;
	struct chain_slot *slot;
	u64 start;
	int index;

	if (!tid || !me || !state)
		return;
	index = bucket_find(&chain_keys, chain_bucket(tid), tid);
	if (index < 0)
		return;
	slot = chain_slot_at(index);
	if (!slot)
		return;
	start = slot->start_ns;
	if (!start)
		return;
	phase = slot->phase;
	if (phase == CHAIN_PHASE_WOKEN) {
		state->seen[TRACK_CHAIN]++;
		histogram_delay(TRACK_CHAIN, cpu, chain_age(start, now), ALONE);
		if (chain_age(start, now) >= floor_chain[CHAIN_END_RUN])
			chain_outlier(ctx, next, slot, CHAIN_END_RUN, now);
		/* Out of a page fault: no one tells when it returns to user space. */
		if (chain_user && !(next->flags & PF_KTHREAD) && task_syscall(next) < 0) {
			slot->returned = 1;
			state->chain_unseen++;
		}
	}
	if (chain_age(start, now) > chain_age_ns) {
		if (chain_finish(slot, index, start))
			state->chain_ended++;
		return;
	}
	slot->phase = CHAIN_PHASE_RUN;
	me->index = index + 1;
	me->tid = tid;
	if (!(phase & CHAIN_PHASE_MERGED))
		chain_add_task(&slot->chain, slot->returned == 2 ? CHAIN_USER : CHAIN_RUN, cpu, now, next);
}

/* Whether current carries a chain: most do not, and the clock is dear. */
static __always_inline bool chain_returns(struct task_struct *current, u32 cpu)
{
	struct chain_cpu *me = chain_this_cpu(cpu);

	return me && me->index && me->tid == (u32)current->pid;
}

/* current returns to user space from a system call. */
static __always_inline void chain_return(void *ctx, struct task_struct *current, u32 cpu, u64 now)
{
	struct chain_cpu *me = chain_this_cpu(cpu);
	struct chain_slot *slot;

	if (!me || !me->index || me->tid != current->pid)
		return;
	slot = chain_slot_at(me->index - 1);
	if (!slot || !slot->start_ns || slot->returned)
		return;
	slot->returned = 2;
	if (chain_age(slot->start_ns, now) >= floor_chain[CHAIN_END_USER])
		chain_outlier(ctx, current, slot, CHAIN_END_USER, now);
	chain_add_task(&slot->chain, CHAIN_USER, cpu, now, current);
}

/* The thread is gone, and its last switch was not seen. True: it carried one. */
static __always_inline bool chain_forget(u32 tid)
{
	int index = bucket_find(&chain_keys, chain_bucket(tid), tid);
	struct chain_slot *slot;
	u64 start;

	if (index < 0)
		return false;
	slot = chain_slot_at(index);
	if (!slot)
		return false;
	start = slot->start_ns;
	return start && chain_finish(slot, index, start);
}

#endif
