/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Declared pairs: what the hook of an entry or an exit does. Timeouts: pair_timeout.h. */
#ifndef TAILCAM_TRACKER_PAIR_H
#define TAILCAM_TRACKER_PAIR_H

#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/stacks.h"
#include "trackers/pair_fetch.h"
#include "trackers/pair_table.h"

const volatile struct pair_hook hook;

/*
 * Some hooks may be preempted (functions, user space), and all be interrupted
 * by others, so a CPU has several slots to make outliers in.
 */
struct pair_scratch {
	struct scratch s;
	u64 busy;
};

/* Where outliers of pairs are made, PAIR_SCRATCHES a CPU; written by that CPU. Sized by the daemon. */
MAP(pair_scratches, ARRAY, 0, 1, u32, struct pair_scratch);

static __always_inline struct pair_scratch *scratch_claim(u32 cpu)
{
#pragma unroll
	for (int i = 0; i < PAIR_SCRATCHES; i++) {
		u32 index = cpu * PAIR_SCRATCHES + i;
		struct pair_scratch *p = bpf_map_lookup_elem(&pair_scratches, &index);

		if (p && !p->busy && !__sync_val_compare_and_swap(&p->busy, 0, 1))
			return p;
	}
	return NULL;
}

/* This CPU's account of the pair; interrupts write it too. */
static __always_inline struct pair_state *pair_account(u32 pair, u32 cpu)
{
	u32 index = cpu * MAX_PAIRS + (pair & (MAX_PAIRS - 1));

	return bpf_map_lookup_elem(&pair_states, &index);
}

/* -------------------------------------------------------------------- entry */

static __always_inline void slot_fill(void *ctx, struct pair_slot *slot, struct pair_try *c, enum hook_kind kind,
				      struct task_struct *current, u32 cpu)
{
	slot->part[0] = c->part[0];
	slot->part[1] = c->part[1];
	slot->part[2] = c->part[2];
	slot->pair = hook.pair;
	slot->depth = 1;
	slot->cpu = cpu;
	slot->tid = current->pid;
	slot->pid = current->tgid;
	slot->task = pointer_number(current);
	slot->own_task = hook.own_task;
	if (!hook.own_task) {
		slot->uid = current->cred->uid.val;
		slot->kthread = !!(current->flags & PF_KTHREAD);
		slot->cgroup_id = current->cgroups->dfl_cgrp->kn->id;
		COPY_COMM(slot->comm, current);
	}
#pragma unroll
	for (int i = 0; i < PAIR_LABELS; i++)
		if (hook.label[i].base)
			fetch_label(ctx, &hook.label[i], kind, slot->label[i]);
}

static __always_inline void pair_entry(void *ctx, struct pair_try *c, enum hook_kind kind)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id(), pair = hook.pair;
	u64 now = bpf_ktime_get_ns();
	struct pair_state *account;
	struct cpu_state *me;
	struct pair_slot *slot;

	c->token = pair_token(current->pid, cpu);
	c->keep = hook.policy == PAIR_KEEP;
	pair_claim(c);
	if (c->result == PAIR_FRESH) {
		slot = pair_slot_at(c->index);
		if (!slot)
			return;
		slot_fill(ctx, slot, c, kind, current, cpu);
		pair_publish(slot, now);
		return;
	}
	account = pair_account(pair, cpu);
	me = this_cpu(cpu);
	if (!account || !me)
		return;
	if (c->result == PAIR_OWNED) {
		slot = pair_slot_at(c->index);
		if (!slot)
			return;
		if (hook.policy == PAIR_COUNT) {
			slot->depth++;
			pair_publish(slot, c->start);
			__sync_fetch_and_add(&account->nested, 1);
			return;
		}
		slot_fill(ctx, slot, c, kind, current, cpu);
		pair_publish(slot, now);
		__sync_fetch_and_add(&account->replaced, 1);
		__sync_fetch_and_add(&me->replaced[TRACK_PAIR], 1);
	} else if (c->result == PAIR_PENDING) {
		__sync_fetch_and_add(&account->kept, 1);
	} else if (c->result == PAIR_FULL) {
		__sync_fetch_and_add(&account->full, 1);
		__sync_fetch_and_add(&me->table_full[TRACK_PAIR], 1);
	} else {
		__sync_fetch_and_add(&account->unsettled, 1);
	}
}

/* --------------------------------------------------------------------- exit */

/* The caller owns the work, and ends it. */
static __always_inline void slot_release(u32 index)
{
	pending_release(&pair_keys, index);
}

/* Counts its delay for its rule, if that has a histogram. */
static __always_inline void pair_histogram(struct pair_state *account, u64 delay, u64 now, u32 cpu)
{
	u32 gen = generation, pair = hook.pair & (MAX_PAIRS - 1), index;
	struct task_struct *current;
	struct pair_scratch *p;
	struct facts *f;

	histogram_delay(TRACK_PAIR, cpu, delay, SHARED);
	if (!histograms || histograms_shed)
		return;
	index = pair_histograms[gen & 1][pair];
	if (index >= MAX_RULES)
		return;
	p = scratch_claim(cpu);
	if (!p) {
		__sync_fetch_and_add(&account->crowded, 1);
		return;
	}
	current = bpf_get_current_task_btf();
	f = &p->s.facts;
	__builtin_memset(f, 0, sizeof(*f));
	f->generation = gen;
	f->syscall = -1;
	f->cpu = cpu;
	histogram_task(f, current, NEED_TASK | NEED_CGROUP);
	if (!is_self(f->pid))
		histogram_range(&p->s, (gen & 1) * MAX_RULES + index, 1, cpu, now, delay);
	__sync_lock_test_and_set(&p->busy, 0);
}

/* The floor is passed. */
static __always_inline void pair_outlier(void *ctx, struct pair_try *c, struct pair_slot *slot, enum hook_kind kind,
					 struct pair_state *account, u64 now, u32 cpu)
{
	struct pair_scratch *p = scratch_claim(cpu);
	u32 pair = hook.pair & (MAX_PAIRS - 1), rule;
	struct pair_extra *extra;
	struct scratch *s;

	if (!p) {
		slot_release(c->index);
		__sync_fetch_and_add(&account->crowded, 1);
		return;
	}
	s = &p->s;
	outlier_reset(s, TRACK_PAIR, cpu, c->start, now);
	s->timed_out = deadline_fired(&slot->deadline, c->start);
	extra = (struct pair_extra *)s->out.extra;
	extra->pair = pair;
	extra->part[0] = c->part[0];
	extra->part[1] = c->part[1];
	extra->part[2] = c->part[2];
	extra->entry_tid = slot->tid;
	extra->entry_pid = slot->pid;
	if (!hook.own_task)
		__builtin_memcpy(extra->entry_comm, slot->comm, TASK_COMM_LEN);
	s->out.entry_cpu = slot->cpu;
	s->facts.cpu = cpu;
	bpf_probe_read_kernel(extra->label, sizeof(extra->label), slot->label);
	slot_release(c->index);
	outlier_task(s, bpf_get_current_task_btf());
	if (is_self(s->facts.pid))
		goto out;
#pragma unroll
	for (int i = 0; i < PAIR_LABELS; i++)
		if (hook.label[i].base)
			fetch_label(ctx, &hook.label[i], kind, extra->label[i]);
	rule = pair_rules[s->facts.generation & 1][pair];
	if (rule >= MAX_RULES)
		goto out;
	if (!evaluate_range(s, (s->facts.generation & 1) * MAX_RULES + rule, 1, now - c->start))
		goto out;
	stacks_of_current(ctx, s);
	context_of_current(&s->out);
	outlier_emit(s);
out:
	__sync_lock_test_and_set(&p->busy, 0);
}

static __always_inline void pair_exit(void *ctx, struct pair_try *c, enum hook_kind kind)
{
	u32 pair = hook.pair & (MAX_PAIRS - 1);
	struct pair_state *account;
	struct cpu_state *me;
	struct pair_slot *slot;
	u64 now;
	u32 cpu;

	c->keep = 0;
	pair_take(c);
	if (c->result == PAIR_NONE || c->result == PAIR_FULL)
		return;
	cpu = bpf_get_smp_processor_id();
	account = pair_account(pair, cpu);
	if (!account)
		return;
	if (c->result == PAIR_BUSY) {
		__sync_fetch_and_add(&account->missed, 1);
		return;
	}
	slot = pair_slot_at(c->index);
	if (!slot)
		return;
	if (hook.role == PAIR_CANCEL) {
		deadline_fired(&slot->deadline, c->start);
		slot_release(c->index);
		__sync_fetch_and_add(&account->cancelled, 1);
		return;
	}
	if (hook.policy == PAIR_COUNT && slot->depth > 1) {
		slot->depth--;
		pair_publish(slot, c->start);
		return;
	}
	now = bpf_ktime_get_ns();
	me = this_cpu(cpu);
	__sync_fetch_and_add(&account->seen, 1);
	if (me)
		__sync_fetch_and_add(&me->seen[TRACK_PAIR], 1);
	pair_histogram(account, now - c->start, now, cpu);
	if ((s64)(now - c->start) >= (s64)floor_pair[pair])
		pair_outlier(ctx, c, slot, kind, account, now, cpu);
	else
		slot_release(c->index);
}

static __always_inline int pair_event(void *ctx, enum hook_kind kind)
{
	struct pair_try c = {};
	bool bad = false;

	if (hook.role == PAIR_ENTRY && floor_pair[hook.pair & (MAX_PAIRS - 1)] == NEVER)
		return 0;
#pragma unroll
	for (int i = 0; i < PAIR_CONDITIONS; i++)
		if (!condition_holds(ctx, &hook.condition[i], kind, &bad))
			return 0;
#pragma unroll
	for (int i = 0; i < PAIR_PARTS; i++)
		if (hook.part[i].base)
			c.part[i] = fetch_number(ctx, &hook.part[i], kind, &bad);
	if (bad) {
		struct pair_state *account = pair_account(hook.pair, bpf_get_smp_processor_id());

		if (account)
			__sync_fetch_and_add(&account->unread, 1);
		return 0;
	}
	c.key = pair_hash(hook.pair, c.part);
	if (hook.role == PAIR_ENTRY)
		pair_entry(ctx, &c, kind);
	else
		pair_exit(ctx, &c, kind);
	return 0;
}

#endif
