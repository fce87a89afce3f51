/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * User stacks of tasks that are not current. The kernel unwinds the user stack
 * of the current task only (kernel/bpf/stackmap.c, "crosstask"), and at
 * sched_switch the slow task is not it yet. So the outlier goes out with the
 * innermost frame alone, and the whole stack follows from the first hook that
 * the task itself passes: the end of the system call it slept in, or its next
 * switch. If its stack pointer has moved by then, it has gone on, and none is sent.
 */
#ifndef TAILCAM_USER_STACK_H
#define TAILCAM_USER_STACK_H

#include "state.h"
#include "task.h"

/* Owes the user stack of next, which gets this CPU. */
static __always_inline void user_stack_later(struct outlier *out, struct task_struct *next, struct cpu_state *me)
{
	void *regs = (void *)bpf_task_pt_regs(next);
	u64 ip = 0, sp = 0;

	if (!regs)
		return;
	regs_user(regs, &ip, &sp);
	out->user[0] = ip;
	out->user_frames = !!ip;
	if (!user_stacks_later)
		return;
	out->flags |= OUTLIER_USER_LATER;
	me->later_tid = next->pid;
	me->later_sp = sp;
	me->later_time_ns = out->time_ns;
}

/* Sends the owed user stack if current is the task that owes it. */
static __always_inline void user_stack_now(void *ctx, struct task_struct *current, struct cpu_state *me)
{
	struct user_stack *u;
	struct ring_use *use;
	u64 ip = 0, sp = 0;
	void *regs;
	long size;

	if (!me->later_time_ns || me->later_tid != current->pid)
		return;
	regs = (void *)bpf_task_pt_regs(current);
	if (!regs)
		return;
	regs_user(regs, &ip, &sp);
	if (sp == me->later_sp) {
		use = ring_claim(RING_STACKS, sizeof(*u));
		u = use ? bpf_ringbuf_reserve(&outliers, sizeof(*u), 0) : NULL;
		if (use && !u)
			ring_unclaim(use, sizeof(*u));
		if (u) {
			u->type = USER_STACK_TYPE;
			u->tid = me->later_tid;
			u->time_ns = me->later_time_ns;
			size = bpf_get_stack(ctx, u->user, sizeof(u->user), BPF_F_USER_STACK);
			u->frames = size > 0 ? size / sizeof(u64) : 0;
			bpf_ringbuf_submit(u, 0);
		}
	}
	me->later_time_ns = 0;
}

#endif
