/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Under which circumstances a task leaves its CPU: rec_switch.prev_state. */
#ifndef TAILCAM_SWITCH_STATE_H
#define TAILCAM_SWITCH_STATE_H

#include "abi/record.h"
#include "kernel.h"
#include "task.h"

/*
 * The cgroup of prev has used up its CPU quota on this CPU. From 6.18 on each
 * task is taken off its queue by itself, and marked ("sched/fair: Switch to
 * task based throttle model"); before, its whole queue is
 * (kernel/sched/fair.c, throttle_cfs_rq()), or one above it, which
 * throttle_count counts. Real-time tasks have no part in it.
 */
static __always_inline bool switch_throttled(struct task_struct *prev)
{
	if (bpf_core_field_exists(prev->throttled))
		return prev->throttled;
	if (!bpf_core_field_exists(prev->se.cfs_rq) || !bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count))
		return false;
	return prev->prio >= MAX_RT_PRIO && prev->se.cfs_rq->throttle_count > 0;
}

/*
 * A cgroup freezer stops prev: that of cgroup v2 sets a trap, and prev sleeps
 * as many do (kernel/signal.c, do_freezer_trap()); that of cgroup v1 and of
 * suspend has a state of its own (kernel/freezer.c).
 */
static __always_inline bool switch_frozen(struct task_struct *prev, u32 state)
{
	return state & TASK_FROZEN || prev->jobctl & JOBCTL_TRAP_FREEZE;
}

/* The system call that prev blocks in, as PREV_STATE holds it. */
static __always_inline u32 switch_call(struct task_struct *prev)
{
	s32 nr;

	/* What workers have as registers of user space is none of theirs. */
	if (prev->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	nr = trusted_syscall((void *)bpf_task_pt_regs(prev));
	if (nr < 0)
		return PREV_EXCEPTION;
	if ((u32)nr >= PREV_EXCEPTION - 1 || task_compat(prev))
		return 0;
	return nr + 1;
}

static __always_inline u32 switch_state(struct task_struct *prev, bool preempt, u32 state)
{
	u32 s = 0;

	if (!prev->pid) /* idle */
		return preempt ? PREV_PREEMPTED : state & PREV_STATE;
	if (switch_throttled(prev))
		s |= PREV_THROTTLED;
	if (preempt)
		return s | PREV_PREEMPTED;
	state &= PREV_STATE;
	if (!state)
		return s;
	if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
		s |= PREV_IOWAIT;
	if (switch_frozen(prev, state))
		s |= PREV_FROZEN;
	return s | state | switch_call(prev) << PREV_CALL_SHIFT;
}

#endif
