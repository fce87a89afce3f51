/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stacks of outliers: of tasks that are current, that are not, and of wakers. */
#ifndef TAILCAM_STACKS_H
#define TAILCAM_STACKS_H

#include "lib/messages.h"
#include "lib/outlier.h"
#include "lib/task.h"
#include "lib/thread_context.h"

const volatile bool waker_stacks_always; /* a wakeup rule wants them: taken at every waking */
const volatile bool waker_stacks_slow;	 /* only an offcpu rule does: taken past its floor */
const volatile bool user_stacks_later;	 /* a rule at sched_switch wants user stacks, and irq_work_entry is here */

/* A wakeup rule that is not paused wants stacks of wakers. Written by the daemon. */
volatile u32 waker_stacks_wanted;

/* --------------------------------------------------------------- user space */

/*
 * Where a task is in user space is told by its registers, which go out with the
 * outlier, and by what is on its stack. The daemon has it walked by a helper,
 * which knows the call frame information of the program's files.
 *
 * The stack's memory must be of that moment. Of the current task it is copied
 * here. At sched_switch the slow task is next, whose memory is not mapped yet.
 * But the outlier itself wakes the daemon through an interrupt to this CPU
 * (kernel/bpf/ringbuf.c, irq_work_queue()): it comes as soon as interrupts are
 * on, after the switch, and before the task is back in user space. Where that
 * cannot be seen, or comes too late, the helper reads the memory, and the task
 * may have gone on by then.
 */

#define LATER_NS 10000000 /* that such an interrupt may take on a machine whose CPUs are stolen */

/* Of the task whose registers these are. */
static __always_inline void user_registers(struct outlier *out, struct task_struct *p, void *regs)
{
	regs_read(regs, out->user_regs);
	if (regs_narrow(regs))
		out->flags |= OUTLIER_USER_32;
	out->user_start_ns = BPF_CORE_READ(p, start_boottime);
	out->user_switches = BPF_CORE_READ(p, nvcsw) + BPF_CORE_READ(p, nivcsw);
}

/* Copies the stack of current from sp on, as far as it is in memory: nothing is waited for. */
static __noinline int user_memory_send(u32 tid, u64 time_ns, u64 sp)
{
	struct user_memory *m = message_reserve_spare(RING_STACKS, sizeof(*m));
	u32 n;

	if (!m)
		return 0;
	m->type = USER_MEMORY_TYPE;
	m->_pad = 0;
	m->tid = tid;
	m->time_ns = time_ns;
	m->base = sp & ~(u64)(USER_CHUNK - 1);
	for (n = 0; n < USER_BYTES / USER_CHUNK; n++)
		if (bpf_probe_read_user(m->data + n * USER_CHUNK, USER_CHUNK, (void *)(m->base + n * USER_CHUNK)))
			break;
	m->bytes = n * USER_CHUNK;
	bpf_ringbuf_submit(m, 0);
	return 1;
}

/* What the rules that fire want, of the current task. */
static __always_inline void stacks_of_current(void *ctx, struct scratch *s)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct outlier *out = &s->out;
	void *regs;
	long size;

	if (s->wants_kernel) {
		size = bpf_get_stack(ctx, out->kernel, sizeof(out->kernel), 0);
		out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (!s->wants_user || (current->flags & PF_KTHREAD))
		return;
	regs = (void *)bpf_task_pt_regs(current);
	if (!regs)
		return;
	user_registers(out, current, regs);
	user_memory_send(current->pid, out->time_ns, out->user_regs[USER_SP]);
}

/* Of next, which gets this CPU: what is in its memory is to follow. */
static __always_inline void user_defer(struct scratch *s, struct task_struct *next, struct cpu_state *me)
{
	struct outlier *out = &s->out;
	void *regs;

	if (next->flags & PF_KTHREAD)
		return;
	regs = (void *)bpf_task_pt_regs(next);
	if (!regs)
		return;
	if (s->wants_user) {
		user_registers(out, next, regs);
		if (user_stacks_later)
			out->flags |= OUTLIER_USER_LATER;
	}
	if (thread_contexts_later && context_place_of(next))
		out->flags |= OUTLIER_CONTEXT_LATER;
	if (!(out->flags & OUTLIER_LATER))
		return;
	me->later_flags = out->flags & OUTLIER_LATER;
	me->later_tid = next->pid;
	me->later_ip = regs_ip(regs);
	me->later_sp = regs_sp(regs);
	me->later_switches = next->nvcsw + next->nivcsw;
	me->later_time_ns = out->time_ns;
}

/* Sends what is to follow, if current is that task still, and has not been in user space. */
static __always_inline void user_resolve(struct task_struct *current, struct cpu_state *me)
{
	u64 time_ns = me->later_time_ns, sp;
	void *regs;

	if (!time_ns)
		return;
	me->later_time_ns = 0;
	if (me->later_tid != current->pid || me->later_switches != (u32)(current->nvcsw + current->nivcsw) ||
	    bpf_ktime_get_ns() - time_ns > LATER_NS)
		return;
	regs = (void *)bpf_task_pt_regs(current);
	if (!regs)
		return;
	sp = regs_sp(regs);
	if (regs_ip(regs) != me->later_ip || sp != me->later_sp)
		return;
	if (thread_contexts_later && (me->later_flags & OUTLIER_CONTEXT_LATER))
		context_send(current, time_ns);
	if (user_stacks_later && (me->later_flags & OUTLIER_USER_LATER))
		user_memory_send(current->pid, time_ns, sp);
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
