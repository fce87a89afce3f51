/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Timeouts of declared pairs, and work whose exit cannot come. They belong to the
 * main object, which has the tick; entry and exit (pair.h) are loaded once a hook.
 */
#ifndef TAILCAM_TRACKER_PAIR_TIMEOUT_H
#define TAILCAM_TRACKER_PAIR_TIMEOUT_H

#include "lib/timeout_scan.h"
#include "trackers/pair_table.h"

static __always_inline void pair_scan(struct tick_walk *w, u32 index)
{
	struct pair_slot *slot = pair_slot_at(index);
	u64 start;
	u32 pair;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	pair = slot->pair;
	if (start)
		timeout_check(w, TRACK_PAIR, index, start, start, timeout_pair[pair & (MAX_PAIRS - 1)],
			      &slot->deadline);
}

/* The task of the entry as it was then, where it is gone by now: the work is pending nevertheless. */
static __always_inline void entry_facts(struct scratch *s, struct pair_slot *slot)
{
	s->out.tid = slot->tid;
	s->out.pid = s->facts.pid = slot->pid;
	s->out.uid = s->facts.uid = slot->uid;
	s->out.cgroup_id = s->facts.cgroup_id = slot->cgroup_id;
	__builtin_memcpy(s->out.comm, slot->comm, TASK_COMM_LEN);
	__builtin_memcpy(s->facts.comm, slot->comm, TASK_COMM_LEN);
	s->facts.thread = slot->kthread ? THREAD_KERNEL : THREAD_USER;
	if (slot->kthread)
		s->out.flags |= OUTLIER_KTHREAD;
}

static __always_inline void expire_pair(struct tick_walk *w, u32 index)
{
	struct pair_slot *slot = pair_slot_at(index);
	struct task_struct *task;
	struct pair_extra *extra;
	struct scratch *s;
	u32 rule, pair;
	bool alive;
	u64 start;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expiry_start(w, TRACK_PAIR, start, start, &slot->deadline);
	if (!s)
		return;
	pair = slot->pair & (MAX_PAIRS - 1);
	rule = pair_rules[s->facts.generation & 1][pair];
	task = (struct task_struct *)slot->task;
	alive = read_task(s, task, slot->tid);
	if (!alive)
		entry_facts(s, slot);
	if (rule >= MAX_RULES || is_self(s->facts.pid) || (!alive && slot->own_task)) {
		slot->deadline.due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	extra = (struct pair_extra *)s->out.extra;
	extra->pair = pair;
	extra->part[0] = slot->part[0];
	extra->part[1] = slot->part[1];
	extra->part[2] = slot->part[2];
	extra->entry_tid = slot->tid;
	extra->entry_pid = slot->pid;
	extra->no_exit = 1;
	bpf_probe_read_kernel(extra->label, sizeof(extra->label), slot->label);
	s->out.entry_cpu = slot->cpu;
	evaluate_range(s, (s->facts.generation & 1) * MAX_RULES + rule, 1, w->now - start);
	if (!expiry_claim(s, &slot->start_ns, &slot->deadline, start, start))
		return;
	if (alive && s->wants_kernel)
		read_stack(s, slot->tid);
	if (alive && s->wants_user)
		read_user(s, task, task_regs(task));
	outlier_emit(s);
}

/* Ends the work at a slot that began at start, unless its exit is faster (see pair_table.h). */
static __always_inline int pair_forget(u32 index, u64 start)
{
	struct pair_slot *slot = pair_slot_at(index);
	struct pair_state *account;
	u32 i;

	if (!slot || !start || __sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return 0;
	i = bpf_get_smp_processor_id() * MAX_PAIRS + (slot->pair & (MAX_PAIRS - 1));
	account = bpf_map_lookup_elem(&pair_states, &i);
	if (account)
		__sync_fetch_and_add(&account->forgotten, 1);
	pending_release(&pair_keys, index);
	return 1;
}

/* A pass of its own, with a frame of its own (see trackers/irq.h). */
static long expire_pair_step(u32 i, struct tick_walk *w)
{
	struct due_slot *p = bpf_map_lookup_elem(&due_slots, &i);

	if (!p)
		return 1;
	if (p->tracker == TRACK_PAIR)
		expire_pair(w, p->index);
	return 0;
}

#endif
