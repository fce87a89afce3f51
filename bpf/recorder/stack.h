/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stacks in the recorder: of tasks that return from a long wait, and of tasks that run. */
#ifndef TAILCAM_RECORDER_STACK_H
#define TAILCAM_RECORDER_STACK_H

#include "lib/core_fixes.h"
#include "recorder/ring.h"

const volatile bool record_wait;

/*
 * What is a long wait. Uninterruptible ones are of the kernel's own making, and only the stack
 * tells why. Of others, the system call tells most.
 */
#define WAIT_UNINTERRUPTIBLE_NS 5000000
#define WAIT_INTERRUPTIBLE_NS 20000000

/* A stack takes some 10 us, as its memory is cold: in a window, a CPU takes so many at most, 0.25 % of its time. */
#define WAIT_WINDOW_NS 100000000
#define WAIT_UNINTERRUPTIBLE_MOST 20
#define WAIT_INTERRUPTIBLE_MOST 5

static __always_inline void stack_fill(struct record *r, u16 kind, u32 pid, u64 *ip)
{
	r->stack.pid = pid;
	r->stack.kind = kind;
#pragma unroll
	for (int i = 0; i < STACK_FRAMES; i++) {
		r->stack.low[i] = ip[i];
		r->stack.high[i] = ip[i] >> 32;
	}
}

/* Not of threads of the kernel that have nothing to do. */
static __always_inline bool wait_uninterruptible(u32 state)
{
	return state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD);
}

/* Whether the wait of next deserves a stack. */
static __always_inline bool wait_is_long(struct task_struct *next, u32 state, u64 wait)
{
	if (wait_uninterruptible(state))
		return wait >= WAIT_UNINTERRUPTIBLE_NS;
	return wait >= WAIT_INTERRUPTIBLE_NS && !(next->flags & PF_KTHREAD);
}

/*
 * next gets the CPU after a long wait. It is not current, so this is the stack with which it
 * left its CPU, without functions of the scheduler (stack_trace_consume_entry_nosched() in
 * kernel/stacktrace.c). A function of its own: few switches need it.
 */
static __noinline int record_wait_stack(void *ctx, struct task_struct *next, struct cpu_state *me, u32 state, u64 now)
{
	struct wait_stacks *waits = &me->waits;
	u64 ip[STACK_FRAMES] = {};
	struct record r;

	if (record_shed(REC_WAIT))
		return 0;
	if (now - waits->window_ns >= WAIT_WINDOW_NS) {
		waits->window_ns = now;
		waits->uninterruptible = 0;
		waits->interruptible = 0;
	}
	if (!wait_uninterruptible(state)) {
		if (waits->interruptible++ >= WAIT_INTERRUPTIBLE_MOST)
			return 0;
	} else if (waits->uninterruptible++ >= WAIT_UNINTERRUPTIBLE_MOST) {
		waits->left_out++;
		return 0;
	}
	if (bpf_get_task_stack(next, ip, sizeof(ip), 0) > 0) {
		record_head(&r, REC_WAIT, bpf_get_smp_processor_id(), next->pid,
			    now + 1); /* it is current after the switch */
		stack_fill(&r, STACK_KERNEL, next->tgid, ip);
		record(ctx, &r);
	}
	waits->taken++;
	waits->taken_ns += bpf_ktime_get_ns() - now;
	return 0;
}

/* A timer has interrupted current: in the kernel, or else in user space. */
static __always_inline int record_sample(void *ctx)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 ip[STACK_FRAMES] = {};
	u16 kind = STACK_KERNEL;
	struct record r;

	if (!current->pid || record_shed(REC_SAMPLE)) /* idle */
		return 0;
	if (bpf_get_stack(ctx, ip, sizeof(ip), 0) <= 0 || !ip[0]) {
		kind = STACK_USER;
		if (bpf_get_stack(ctx, ip, sizeof(ip), BPF_F_USER_STACK) <= 0)
			return 0;
	}
	record_head(&r, REC_SAMPLE, bpf_get_smp_processor_id(), current->pid, bpf_ktime_get_ns());
	stack_fill(&r, kind, current->tgid, ip);
	return record(ctx, &r);
}

#endif
