/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The span tracker: a program says when a piece of its work begins and ends, by
 * a system call that fails at once (abi/span.h). A key belongs to the user and
 * the pid namespace of its caller; any thread or process of both may end it.
 */
#ifndef TAILCAM_TRACKER_SPAN_H
#define TAILCAM_TRACKER_SPAN_H

#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/stacks.h"
#include "lib/timeout_scan.h"
#include "trackers/span_table.h"

const volatile bool track_span;

/* Written by the daemon. */
volatile u64 floor_span;
volatile u64 timeout_span;

#define SPAN_PATH 4 /* beside SPAN_BEGIN, SPAN_END: its key stands in a path */

/* "/dev/nul", "l/span+/", "l/span-/" */
#define SPAN_PATH_0 0x6c756e2f7665642fULL
#define SPAN_PATH_BEGIN 0x2f2b6e6170732f6cULL
#define SPAN_PATH_END 0x2f2d6e6170732f6cULL

/* What a call of faccessat2 says: SPAN_BEGIN, SPAN_END, | SPAN_PATH; 0: nothing to us. */
static __always_inline u32 span_op(void *regs)
{
	u64 args[5], path[2];

	trusted_args(regs, false, args); /* dir, path, mode */
	if (((u32)args[2] & 0xffff0000) == SPAN_MODE) {
		u32 op = args[2] & 0xffff;

		return op == SPAN_BEGIN || op == SPAN_END ? op : 0;
	}
	if ((s32)args[0] != -100 || bpf_probe_read_user(path, sizeof(path), (void *)args[1])) /* AT_FDCWD */
		return 0;
	if (path[0] != SPAN_PATH_0)
		return 0;
	if (path[1] == SPAN_PATH_BEGIN)
		return SPAN_BEGIN | SPAN_PATH;
	return path[1] == SPAN_PATH_END ? SPAN_END | SPAN_PATH : 0;
}

/* -------------------------------------------------------------------- entry */

static __always_inline void span_entry(struct scratch *s, struct task_struct *current, struct span_call *c, u64 now,
				       u32 cpu, struct cpu_state *me)
{
	struct span_slot *slot;
	u32 claimed;

	if (span_take(&s->facts, c)) {
		if (me)
			__sync_fetch_and_add(&me->replaced[TRACK_SPAN], 1 + c->doubles);
	} else {
		c->owner.key = owner_of(current);
		claimed = span_claim(c);
		if (me && claimed == SPAN_NO_ROOM)
			__sync_fetch_and_add(&me->table_full[TRACK_SPAN], 1);
		if (me && claimed == SPAN_OWN)
			me->span.forgotten++;
		if (me && claimed == SPAN_OTHERS)
			me->span.outvied++;
		if (claimed == SPAN_NO_ROOM)
			return;
		slot = span_slot_at(c->index);
		if (!slot)
			return;
		slot->owner = c->owner.index;
	}
	slot = span_slot_at(c->index);
	if (!slot)
		return;
	__builtin_memcpy(slot->key, s->facts.key, SPAN_KEY_LEN);
	slot->uid = c->uid;
	slot->ns = c->ns;
	slot->task = pointer_number(current);
	slot->tid = current->pid;
	slot->pid = current->tgid;
	slot->cpu = cpu;
	slot->cgroup_id = current->cgroups->dfl_cgrp->kn->id;
	COPY_COMM(slot->comm, current);
	__sync_lock_test_and_set(&slot->start_ns, now);
}

/* --------------------------------------------------------------------- exit */

static __always_inline void span_fill(struct span_extra *x, struct span_slot *slot)
{
	__builtin_memcpy(x->key, slot->key, SPAN_KEY_LEN);
	__builtin_memcpy(x->comm, slot->comm, TASK_COMM_LEN);
	x->tid = slot->tid;
	x->pid = slot->pid;
}

/* current ends a span, whose key the scratch of the tracker holds already. */
static __always_inline void histogram_span(struct task_struct *current, u32 cpu, u64 now, u64 delay)
{
	u32 needs;
	struct scratch *s = histogram_of_task(TRACK_SPAN, current, cpu, delay, &needs);

	if (!s)
		return;
	histogram_evaluate(s, TRACK_SPAN, cpu, now, delay);
}

static __always_inline void span_exit(void *ctx, struct scratch *s, struct task_struct *current, struct span_call *c,
				      u64 now, u32 cpu, struct cpu_state *me)
{
	struct span_slot *slot;
	u64 fired, start;

	if (!span_take(&s->facts, c)) {
		if (me)
			me->span.unknown++;
		return;
	}
	start = c->start;
	slot = span_slot_at(c->index);
	if (!slot)
		return;
	if (me) {
		me->seen[TRACK_SPAN]++;
		if (c->doubles)
			__sync_fetch_and_add(&me->replaced[TRACK_SPAN], c->doubles);
	}
	histogram_span(current, cpu, now, now - start);
	if ((s64)(now - start) < (s64)floor_span) {
		span_release(slot, c->index);
		return;
	}
	fired = deadline_fired(&slot->deadline, start);
	s = outlier_init(TRACK_SPAN, cpu, start, now);
	if (!s)
		return;
	s->timed_out = fired;
	s->out.entry_cpu = slot->cpu;
	span_fill((struct span_extra *)s->out.extra, slot);
	span_release(slot, c->index);
	outlier_task(s, current);
	if (is_self(s->facts.pid) || !evaluate(s, TRACK_SPAN, now - start))
		return;
	stacks_of_current(ctx, s);
	context_of_current(&s->out);
	outlier_emit(s);
}

/* current says op: see span_op. */
static __always_inline void span_event(void *ctx, void *regs, struct task_struct *current, u32 op, u64 now, u32 cpu,
				       struct cpu_state *me)
{
	u32 index = cpu * SCRATCHES + TRACK_SPAN;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &index);
	struct span_call c = {};
	u64 args[5], text;
	long size;

	if (!s || (s64)floor_span == (s64)NEVER || task_compat(current, regs))
		return;
	trusted_args(regs, false, args);
	text = args[1];
	if (op & SPAN_PATH)
		text += SPAN_PATH_LEN;
	__builtin_memset(s->facts.key, 0, sizeof(s->facts.key));
	size = bpf_probe_read_user_str(s->facts.key, SPAN_KEY_LEN + 1, (void *)text);
	if (size < 2 || size > SPAN_KEY_LEN) { /* with its NUL */
		if (me)
			me->span.bad_key++;
		return;
	}
	c.uid = current->cred->uid.val;
	c.ns = current->nsproxy->pid_ns_for_children->ns.inum;
	c.key = span_hash(s->facts.key, c.uid, c.ns);
	if ((op & 3) == SPAN_BEGIN)
		span_entry(s, current, &c, now, cpu, me);
	else
		span_exit(ctx, s, current, &c, now, cpu, me);
}

/* ----------------------------------------------------------------- timeouts */

static __always_inline void span_scan(struct tick_walk *w, u32 index)
{
	struct span_slot *slot = span_slot_at(index);
	u64 start;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	if (start)
		timeout_check(w, TRACK_SPAN, index, start, start, timeout_span, &slot->deadline);
}

static __always_inline void expire_span(struct tick_walk *w, u32 index)
{
	struct span_slot *slot = span_slot_at(index);
	struct task_struct *task;
	struct span_extra *extra;
	struct scratch *s;
	bool alive;
	u64 start;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expiry_start(w, TRACK_SPAN, start, start, &slot->deadline);
	if (!s)
		return;
	extra = (struct span_extra *)s->out.extra;
	span_fill(extra, slot);
	__builtin_memcpy(s->facts.key, slot->key, SPAN_KEY_LEN);
	task = (struct task_struct *)slot->task;
	alive = read_task(s, task, slot->tid);
	extra->gone = !alive;
	/* As it was at the entry: its name and cgroup may have changed, and be another's if it is gone. */
	s->out.tid = s->facts.tid = slot->tid;
	s->out.pid = s->facts.pid = slot->pid;
	s->out.uid = s->facts.uid = slot->uid;
	s->out.cgroup_id = s->facts.cgroup_id = slot->cgroup_id;
	__builtin_memcpy(s->out.comm, slot->comm, TASK_COMM_LEN);
	__builtin_memcpy(s->facts.comm, slot->comm, TASK_COMM_LEN);
	s->facts.thread = THREAD_USER;
	s->out.entry_cpu = slot->cpu;
	if (is_self(s->facts.pid)) {
		slot->deadline.due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	evaluate(s, TRACK_SPAN, w->now - start);
	if (!expiry_claim(s, &slot->start_ns, &slot->deadline, start, start))
		return;
	if (alive && s->wants_kernel)
		read_stack(s, slot->tid);
	if (alive && s->wants_user)
		read_user(s, task, task_regs(task));
	outlier_emit(s);
}

/* A pass of its own, with a frame of its own (see trackers/irq.h). */
static long expire_span_step(u32 i, struct tick_walk *w)
{
	struct due_slot *p = bpf_map_lookup_elem(&due_slots, &i);

	if (!p)
		return 1;
	if (p->tracker == TRACK_SPAN)
		expire_span(w, p->index);
	return 0;
}

/* Nobody has ended the span that began at start for too long: true: its slot is free now. */
static __always_inline bool span_expire(u32 index, u64 start, struct cpu_state *me)
{
	struct span_slot *slot = span_slot_at(index);

	if (!slot || !start || __sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return false;
	span_release(slot, index);
	if (me)
		__sync_fetch_and_add(&me->span.expired, 1);
	return true;
}

#endif
