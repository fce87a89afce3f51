/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stacks of outliers: of tasks that are current, that are not, and of wakers. */
#ifndef TAILCAM_STACKS_H
#define TAILCAM_STACKS_H

#include "lib/messages.h"
#include "lib/outlier.h"
#include "lib/task.h"

const volatile bool waker_stacks_always; /* a wakeup rule wants them: taken at every waking */
const volatile bool waker_stacks_slow;	 /* only an offcpu rule does: taken past its floor */
const volatile bool user_stacks_later;	 /* a wakeup or offcpu rule wants user stacks */

/* A wakeup rule that is not paused wants stacks of wakers. Written by the daemon. */
volatile u32 waker_stacks_wanted;

/* What the rules that fire want, of the current task. */
static __always_inline void stacks_of_current(void *ctx, struct scratch *s)
{
	struct outlier *out = &s->out;
	long size;

	if (s->wants_kernel) {
		size = bpf_get_stack(ctx, out->kernel, sizeof(out->kernel), 0);
		out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (s->wants_user) {
		size = bpf_get_stack(ctx, out->user, sizeof(out->user), BPF_F_USER_STACK);
		out->user_frames = size > 0 ? size / sizeof(u64) : 0;
	}
}

/* -------------------------------- user stacks of tasks that are not current */

/*
 * The kernel unwinds the user stack of the current task only (kernel/bpf/stackmap.c, "crosstask"), and at
 * sched_switch the slow task is not it yet. So the outlier goes out with the
 * innermost frame alone, and the whole stack follows from the first hook that
 * the task itself passes: the end of the system call it slept in, or its next
 * switch. If its stack pointer has moved by then, it has gone on, and none is sent.
 */

/* The user stack of next, which gets this CPU, is to follow. */
static __always_inline void user_stack_defer(struct outlier *out, struct task_struct *next, struct cpu_state *me)
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

/* Sends the user stack that is to follow, if current is that task. */
static __always_inline void user_stack_resolve(void *ctx, struct task_struct *current, struct cpu_state *me)
{
	struct user_stack *u;
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
		u = message_reserve(RING_STACKS, sizeof(*u));
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

/* ------------------------------------------------------------------- wakers */

/*
 * Kernel stacks of wakers. They must be taken at the wake-up, when it is not
 * known yet whether the wait will be long. A rule of the offcpu tracker knows
 * the sleep by then, so only long ones pay; a rule of the wakeup tracker makes
 * every wake-up of the machine pay some microseconds.
 *
 * The stack is kept by the woken thread's id, with the time of the wake-up, so
 * that what an older wake-up left is never taken for this one's.
 */

struct waker_stack {
	u64 time_ns; /* of the wake-up */
	u64 frames;
	u64 kernel[MAX_STACK];
};

/* Wakers' stacks by the woken thread; written at its wake-up, read when it gets a CPU. Sized by the daemon. */
MAP(waker_stacks, LRU_HASH, 0, 1, u32, struct waker_stack);

/* Where a stack is taken, one a CPU: wake-ups run with interrupts off. Sized by the daemon: CPUs. */
MAP(waker_scratch, ARRAY, 0, 1, u32, struct waker_stack);

/* Keeps the stack of current, which wakes thread tid. */
static __always_inline void waker_stack_keep(void *ctx, u32 tid, u32 cpu, u64 now)
{
	struct waker_stack *w = bpf_map_lookup_elem(&waker_scratch, &cpu);
	long size;

	if (!w)
		return;
	size = bpf_get_stack(ctx, w->kernel, sizeof(w->kernel), 0);
	if (size <= 0)
		return;
	w->time_ns = now;
	w->frames = size / sizeof(u64);
	bpf_map_update_elem(&waker_stacks, &tid, w, BPF_ANY);
}

/* Copies the stack that was kept at that wake-up into out, if it still is. */
static __always_inline void waker_stack_get(struct outlier *out, u32 tid, u64 woken)
{
	struct waker_stack *w = bpf_map_lookup_elem(&waker_stacks, &tid);

	if (!w || w->time_ns != woken)
		return;
	if (bpf_probe_read_kernel(out->waker, sizeof(out->waker), w->kernel))
		return;
	out->waker_frames = w->frames;
}

/* ------------------------------------------------------- for user space */

/* Where a stack is taken for user space, which asks for one at a time. Fixed size. */
MAP(task_stacks, ARRAY, 0, 1, u32, struct task_stack);

static __always_inline void task_stack_write(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_stack *s;
	u32 zero = 0;
	long size;

	if (!p)
		return;
	s = bpf_map_lookup_elem(&task_stacks, &zero);
	if (!s)
		return;
	size = bpf_get_task_stack(p, s->kernel, sizeof(s->kernel), 0);
	s->frames = size > 0 ? size / sizeof(u64) : 0;
	bpf_seq_write(ctx->meta->seq, s, sizeof(*s));
}

#endif
