/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The syscall tracker. A call that no rule names costs one load and compare
 * at each end. Threads that die inside a call, or change their id in execve,
 * free their place at the process events.
 */
#ifndef TAILCAM_SYSCALL_H
#define TAILCAM_SYSCALL_H

#include "histogram.h"
#include "outlier.h"
#include "grow.h"
#include "progress.h"
#include "timeout.h"
#include "user_stack.h"

static __always_inline struct call_slot *call_slot_at(int at)
{
	return SLOT_AT(&call_slots, &more_call_slots, at);
}

static __always_inline void call_forget(int at, struct call_slot *slot)
{
	slot->start_ns = 0;
	table_release(TABLE_CALLS, &call_keys, at);
}

/* Whether any rule could want this call. */
static __always_inline bool syscall_wanted(u32 nr)
{
	return nr < SYSCALLS && floor_syscall[nr] != NEVER;
}

static __always_inline void syscall_begin(struct task_struct *current, u32 nr, u64 now, u32 cpu, struct cpu_state *me)
{
	struct call_slot *slot;
	bool fresh;
	int at;

	if (task_compat(current))
		return;
	at = table_claim(TABLE_CALLS, &call_keys, call_mask, (u32)current->pid, HASHED, &fresh);
	if (at < 0) {
		if (me)
			__sync_fetch_and_add(&me->table_full[TRACK_SYSCALL], 1);
		return;
	}
	if (!fresh && me)
		__sync_fetch_and_add(&me->replaced[TRACK_SYSCALL], 1);
	slot = call_slot_at(at);
	if (!slot)
		return;
	slot->nr = nr;
	slot->cpu = cpu;
	if (timeouts)
		slot->task = task_number(current);
	slot->start_ns = now;
}

/* The floor is passed. current is the slow task. */
static __always_inline void syscall_outlier(void *ctx, struct task_struct *current, u32 nr, s64 ret, u32 entry_cpu,
					    u64 start, u64 timed_out, u64 now, u32 cpu)
{
	struct scratch *s = outlier_begin(TRACK_SYSCALL, cpu, start, now);
	struct outlier *out;
	long size;

	if (!s)
		return;
	s->timed_out = timed_out;
	out = &s->out;
	outlier_task(s, current);
	if (s->facts.pid == self_pid)
		return;
	out->syscall = s->facts.syscall = nr;
	out->ret = ret;
	out->entry_cpu = entry_cpu;
	if (!evaluate(s, TRACK_SYSCALL, now - start))
		return;
	if (s->wants_kernel) {
		size = bpf_get_stack(ctx, out->kernel, sizeof(out->kernel), 0);
		out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (s->wants_user) {
		size = bpf_get_stack(ctx, out->user, sizeof(out->user), BPF_F_USER_STACK);
		out->user_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (progress_stacks && s->wants_progress)
		progress_send(out->tid, start);
	outlier_emit(s);
}

static __always_inline void syscall_end(void *ctx, struct task_struct *current, u32 nr, s64 ret, u64 now, u32 cpu,
					struct cpu_state *me)
{
	int at = table_find(TABLE_CALLS, &call_keys, call_mask, (u32)current->pid, HASHED);
	struct call_slot *slot;
	u64 start, timed_out = 0;
	u32 entry_cpu;
	bool slow;

	if (at < 0)
		return;
	slot = call_slot_at(at);
	if (!slot)
		return;
	start = slot->start_ns;
	entry_cpu = slot->cpu;
	if (slot->nr != nr) { /* not the call that began here */
		if (me)
			__sync_fetch_and_add(&me->replaced[TRACK_SYSCALL], 1);
		call_forget(at, slot);
		return;
	}
	if (me)
		me->seen[TRACK_SYSCALL]++;
	histogram_syscall(current, nr, cpu, now, now - start);
	slow = (s64)(now - start) >= (s64)floor_syscall[nr & (SYSCALLS - 1)];
	if (slow)
		timed_out = deadline_take(&slot->start_ns, &slot->deadline);
	call_forget(at, slot);
	if (slow)
		syscall_outlier(ctx, current, nr, ret, entry_cpu, start, timed_out, now, cpu);
}

/* The thread with this id is gone, or the id is no longer its own. */
static __always_inline void call_dies(u32 tid, struct cpu_state *me)
{
	int at = table_find(TABLE_CALLS, &call_keys, call_mask, tid, HASHED);
	struct call_slot *slot;

	if (at < 0)
		return;
	slot = call_slot_at(at);
	if (!slot)
		return;
	if (me)
		__sync_fetch_and_add(&me->reclaimed, 1);
	call_forget(at, slot);
}

/* execve by another thread than the leader: it takes the leader's id along with its call. */
static __always_inline void call_renamed(u32 from, u32 to, struct cpu_state *me)
{
	struct call_slot *old, *slot;
	bool fresh;
	int at, was;

	call_dies(to, me);
	was = table_find(TABLE_CALLS, &call_keys, call_mask, from, HASHED);
	if (was < 0)
		return;
	old = call_slot_at(was);
	at = table_claim(TABLE_CALLS, &call_keys, call_mask, to, HASHED, &fresh);
	slot = at < 0 ? NULL : call_slot_at(at);
	if (!old)
		return;
	if (slot) {
		slot->nr = old->nr;
		slot->cpu = old->cpu;
		slot->task = old->task;
		slot->start_ns = old->start_ns;
	} else if (me) {
		__sync_fetch_and_add(&me->table_full[TRACK_SYSCALL], 1);
	}
	call_forget(was, old);
}

#endif
