/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Threads that end, or change their id, inside a system call; and whether there are any of 32-bit programs. */
#ifndef TAILCAM_TRACKER_SYSCALL_THREAD_H
#define TAILCAM_TRACKER_SYSCALL_THREAD_H

#include "trackers/syscall.h"

/* A 32-bit program was seen, as it began or among those that ran: the daemon attaches to the calls of such. */
volatile bool narrow_programs;

/* p may be one. Those left out have no registers of user space, or another task's. */
static __always_inline void narrow_seen(struct task_struct *p)
{
	void *regs;

	if (narrow_programs || p->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return;
	regs = (void *)bpf_task_pt_regs(p);
	if (regs && regs_narrow(regs))
		narrow_programs = true;
}

/* The thread with this id is gone, or the id is no longer its own. */
static __always_inline void call_forget_thread(u32 tid, struct cpu_state *me)
{
	call_drop(tid, me ? &me->reclaimed : NULL);
}

/* execve by another thread than the leader: it takes the leader's id along with its call. */
static __always_inline void call_renamed(u32 from, u32 to, struct cpu_state *me)
{
	struct call_slot *old, *slot;
	bool fresh;
	int index, was;

	call_forget_thread(to, me);
	was = table_find(TABLE_CALLS, &call_keys, call_mask, from, HASHED);
	if (was < 0)
		return;
	old = call_slot_at(was);
	index = table_claim(TABLE_CALLS, &call_keys, call_mask, to, HASHED, &fresh);
	slot = index < 0 ? NULL : call_slot_at(index);
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
