/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Switches, wake-ups and migrations, and under which circumstances a task leaves its CPU. */
#ifndef TAILCAM_RECORDER_SCHED_H
#define TAILCAM_RECORDER_SCHED_H

#include "lib/core_fixes.h"
#include "lib/task.h"
#include "recorder/ring.h"

/*
 * A cgroup freezer stops prev: that of cgroup v2 sets a trap, and prev sleeps
 * as many do (kernel/signal.c, do_freezer_trap()); that of cgroup v1 and of
 * suspend has a state of its own (kernel/freezer.c).
 */
static __always_inline bool switch_frozen(struct task_struct *prev, u32 state)
{
	return state & TASK_FROZEN || prev->jobctl & JOBCTL_TRAP_FREEZE;
}

const volatile u32 futex_call; /* its number */

/* linux/futex.h */
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_LOCK_PI2 13
#define FUTEX_CMD 0x7f
#define FUTEX_PRIVATE_FLAG 0x80

/* What prev waits for in futex, as PREV_STATE holds it; 0: not known. regs are its own. */
static __always_inline u32 switch_futex(void *regs)
{
	u64 args[SYSCALL_ARGS];
	u32 kind, value;

	trusted_args(regs, false, args);
	value = args[2];
	if (value > FUTEX_VALUE_OTHER)
		value = FUTEX_VALUE_OTHER;
	if ((args[1] & (FUTEX_CMD | FUTEX_PRIVATE_FLAG)) == (FUTEX_WAIT | FUTEX_PRIVATE_FLAG))
		return PREV_FUTEX_PLACE + value * FUTEX_PLACE_VALUE + (args[3] ? FUTEX_PLACE_TIMED : 0) +
		       (args[0] * HASH_FACTOR >> (64 - FUTEX_PLACE_BITS));
	switch (args[1] & FUTEX_CMD) {
	case FUTEX_WAIT:
		kind = FUTEX_IS_WAIT;
		break;
	case FUTEX_WAIT_BITSET:
		kind = FUTEX_IS_BITSET;
		break;
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
		kind = FUTEX_IS_LOCK_PI;
		break;
	case FUTEX_WAIT_REQUEUE_PI:
		kind = FUTEX_IS_REQUEUE;
		break;
	default:
		return 0;
	}
	if (!(args[1] & FUTEX_PRIVATE_FLAG))
		kind |= FUTEX_SHARED;
	if (args[3])
		kind |= FUTEX_TIMED;
	return PREV_FUTEX | kind | value << FUTEX_VALUE_SHIFT;
}

/* The system call that prev blocks in, as PREV_STATE holds it. */
static __always_inline u32 switch_call(struct task_struct *prev)
{
	u32 futex;
	void *regs;
	s32 nr;

	/* What workers have as registers of user space is none of theirs. */
	if (prev->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return 0;
	regs = trusted_regs(prev);
	nr = trusted_syscall(regs);
	if (nr < 0)
		return PREV_EXCEPTION;
	if ((u32)nr >= SYSCALLS_32)
		return 0;
	if (task_compat(prev, regs))
		return nr + SYSCALLS_32 + 1;
	futex = nr == futex_call ? switch_futex(regs) : 0;
	return futex ?: nr + 1;
}

static __always_inline u32 switch_state(struct task_struct *prev, u32 tid, bool preempt, u32 state)
{
	u32 s = 0;

	if (!tid) /* idle */
		return preempt ? PREV_PREEMPTED : state & PREV_STATE;
	if (task_throttled(prev))
		s |= PREV_THROTTLED;
	if (preempt)
		return s | PREV_PREEMPTED;
	state &= PREV_STATE;
	if (!state)
		return s;
	if (task_iowait(prev))
		s |= PREV_IOWAIT;
	if (switch_frozen(prev, state))
		s |= PREV_FROZEN;
	return s | state | switch_call(prev) << PREV_CALL_SHIFT;
}

static __always_inline void record_switch(void *ctx, struct task_struct *prev, u32 prev_tid, struct task_struct *next,
					  u32 next_tid, bool preempt, u32 prev_state, u32 cpu, u64 now)
{
	struct short_record r;

	if (record_shed(REC_SWITCH)) /* before reading tasks, which is most of the cost */
		return;
	short_head(&r, REC_SWITCH, cpu, prev_tid, now);
	r.raw[0] = next_tid | (u64)(u32)next->tgid << 32;
	r.raw[1] = (u16)prev->prio | (u32)(u16)next->prio << 16 |
		   (u64)switch_state(prev, prev_tid, preempt, prev_state) << 32;
	record_short(ctx, &r, true);
}

/*
 * Whether p is woken for a signal, or by a thaw. complete_signal() makes a
 * signal pending before it wakes who shall take it; timers send some from
 * interrupts, packets none. A freezer changes the state of tasks that sleep
 * without waking them, and what wakes them meanwhile is kept until they thaw
 * (kernel/freezer.c, 6.1+). Signals lie in three cache lines that nobody else needs here, so
 * first the flag is asked that signal_wake_up_state() sets before it wakes.
 */
static __always_inline u32 wake_reason(struct task_struct *p, u32 context)
{
	u32 state = p->__state;
	unsigned long pending;

	if (state & TASK_FROZEN)
		return WAKER_THAW;
	if (!(state & TASK_INTERRUPTIBLE) || (context && context != WAKER_HRTIMER))
		return 0;
	if (!(p->thread_info.flags & TIF_SIGPENDING_OR_NEAR))
		return 0;
	pending = p->pending.signal.sig[0] | p->signal->shared_pending.signal.sig[0];
	return pending & ~p->blocked.sig[0] ? WAKER_SIGNAL : 0;
}

static __always_inline void record_wake(void *ctx, u16 type, struct task_struct *p, struct task_struct *waker,
					u32 context, u32 cpu, u64 now)
{
	struct short_record r;

	if (record_shed(type))
		return;
	short_head(&r, type, cpu, waker->pid, now);
	if (type == REC_WAKING)
		context |= wake_reason(p, context);
	r.raw[0] = (u32)p->pid | (u64)(u32)p->tgid << 32;
	r.raw[1] = (u16)p->prio | (u32)(u16)p->thread_info.cpu << 16 | (u64)context << 32;
	record_short(ctx, &r, p != waker); /* a task that wakes itself has interrupts on */
}

static __always_inline void record_migrate(void *ctx, struct task_struct *p, u32 dest, u32 cpu, u64 now)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct record r = {};

	record_head(&r, REC_MIGRATE, cpu, current->pid, now);
	COPY_COMM(r.migrate.comm, p);
	r.migrate.tid = p->pid;
	r.migrate.prio = p->prio;
	r.migrate.orig_cpu = p->thread_info.cpu;
	r.migrate.dest_cpu = dest;
	record(ctx, &r);
}

#endif
