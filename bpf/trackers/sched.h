/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The wakeup and offcpu trackers. A task that leaves its CPU gets a slot in
 * the pending table; a waker notes itself there; the switch back to the task
 * reads both delays and frees the slot.
 */
#ifndef TAILCAM_TRACKER_SCHED_H
#define TAILCAM_TRACKER_SCHED_H

#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/run_history.h"
#include "lib/stacks.h"
#include "lib/timeout_scan.h"
#include "recorder/stack.h"
#include "trackers/sched_context.h"
#include "trackers/sched_table.h"

/* -------------------------------------------------------------------- entry */

/* prev leaves the CPU. */
static __always_inline void sched_switch_out(struct task_struct *prev, u32 tid, bool preempt, u32 prev_state, u32 cpu,
					     struct cpu_state *me, u64 now)
{
	struct task_slot *slot;
	bool runnable;

	if (!tid)
		return;
	if (prev_state & TASK_DEAD) {
		task_forget(tid);
		return;
	}
	runnable = task_runnable(prev, preempt, prev_state);
	if (runnable && !track_wakeup)
		return;
	slot = task_claim(tid, runnable ? TRACK_WAKEUP : TRACK_OFFCPU, me);
	if (!slot)
		return;
	if (timeouts)
		slot->task = (u64)prev;
	if (runnable) {
		slot->flags = OUTLIER_PREEMPTED;
		slot->entry_cpu = cpu;
		slot->wake_ns = now;
		return;
	}
	slot->state = prev_state;
	slot->off_cpu = cpu;
	slot->off_ns = now;
}

/* Notes waker, with what runs on top of it, as the one who makes p runnable. */
static __always_inline void note_waker(struct task_slot *slot, struct task_struct *p, struct task_struct *waker,
				       u32 context, u32 cpu)
{
	slot->waker_tid = waker->pid;
	slot->waker_pid = waker->tgid;
	slot->waker_cpu = cpu;
	slot->flags |= SLOT_WOKEN;
	slot->waker_context = context;
	slot->entry_cpu = p->thread_info.cpu;
	COPY_COMM(slot->waker_comm, waker);
}

/* p becomes runnable; current is the waker, context what runs on top of it. */
static __always_inline void sched_wake(void *ctx, struct task_struct *p, struct task_struct *waker, u32 context,
				       u32 cpu, u64 now)
{
	struct task_slot *slot = task_find(p->pid);
	bool slow = false;

	if (!slot || slot->wake_ns)
		return; /* not known yet, or runnable already */
	if (!slot->off_ns) {
		slot->entry_cpu = WOKEN_EARLY; /* on its CPU still */
		return;
	}
	note_waker(slot, p, waker, context, cpu);
	if (waker_stacks_slow || thread_contexts)
		slow = (s64)(now - slot->off_ns) >=
		       (s64)floor_offcpu[!!(p->flags & PF_KTHREAD)][state_class(slot->state)];
	if ((waker_stacks_always && waker_stacks_wanted) || (waker_stacks_slow && slow))
		waker_stack_keep(ctx, p->pid, cpu, now);
	if (thread_contexts && slow && !context)
		context_keep(p->pid, CONTEXT_WAKER, now);
	slot->wake_ns = now;
}

/* p is put on a run queue for the first time. */
static __always_inline void sched_wake_new(void *ctx, struct task_struct *p, struct task_struct *waker, u32 context,
					   u32 cpu, u64 now)
{
	struct task_slot *slot;

	slot = task_claim(p->pid, TRACK_WAKEUP, this_cpu(cpu));
	if (!slot)
		return;
	slot->flags = OUTLIER_NEW;
	if (timeouts)
		slot->task = (u64)p;
	note_waker(slot, p, waker, context, cpu);
	if (waker_stacks_always && waker_stacks_wanted)
		waker_stack_keep(ctx, p->pid, cpu, now);
	slot->wake_ns = now;
}

/* p moves to another CPU's run queue while it waits. */
static __always_inline void sched_migrate(struct task_struct *p, u32 to, u64 now)
{
	struct task_slot *slot = task_find(p->pid);
	u64 here;

	if (!slot || !slot->wake_ns)
		return;
	if (!(slot->flags & SLOT_MOVED)) {
		slot->here_ns = slot->wake_ns;
		slot->here_cpu = p->thread_info.cpu;
		slot->best_ns = 0;
		slot->flags |= SLOT_MOVED;
	}
	here = now - slot->here_ns;
	if ((s64)here > (s64)slot->best_ns) {
		slot->best_ns = here;
		slot->best_cpu = slot->here_cpu;
	}
	slot->here_ns = now;
	slot->here_cpu = to;
}

/* --------------------------------------------------------------------- exit */

static __always_inline void outlier_waker(struct outlier *out, struct task_slot *slot, u64 woken)
{
	if (!(slot->flags & SLOT_WOKEN))
		return;
	out->waker_tid = slot->waker_tid;
	out->waker_pid = slot->waker_pid;
	out->waker_cpu = slot->waker_cpu;
	out->waker_context = slot->waker_context;
	if (waker_stacks_always || waker_stacks_slow)
		waker_stack_get(out, out->tid, woken);
	if (thread_contexts)
		context_of_waker(out, woken);
	__builtin_memcpy(out->waker_comm, slot->waker_comm, TASK_COMM_LEN);
}

/* A wait that has ended. */
struct sched_wait {
	u64 start;    /* what its tracker measures from */
	u64 runnable; /* since when next was runnable */
	u64 woken;    /* when it was woken; 0: nobody knows */
	u64 now;
};

/*
 * The floor is passed. next is the slow task and not current: its kernel stack
 * is that of a task off its CPU, its user stack follows later. A function of its
 * own, as all that few switches need: the others' instructions fit fewer cache lines.
 */
static __noinline int sched_outlier(struct task_struct *next, struct task_slot *slot, u32 tracker, struct cpu_state *me,
				    struct sched_wait *w)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = outlier_init(tracker, cpu, w->start, w->now);
	bool moved = slot->flags & SLOT_MOVED;
	struct outlier *out;
	u64 timed_out;
	long size;

	if (tracker == TRACK_WAKEUP)
		timed_out = deadline_take(&slot->wake_ns, &slot->wake_deadline);
	else
		timed_out = deadline_take(&slot->off_ns, &slot->off_deadline);
	if (!s)
		return 0;
	s->timed_out = timed_out;
	out = &s->out;
	outlier_task(s, next);
	if (is_self(s->facts.pid))
		return 0;
	if (!(next->flags & PF_KTHREAD))
		out->syscall = s->facts.syscall = task_syscall(next);
	out->state = slot->state;
	s->facts.state = 1 << state_class(slot->state);
	s->facts.preempted = !!(slot->flags & OUTLIER_PREEMPTED);
	out->flags |= slot->flags & (OUTLIER_PREEMPTED | OUTLIER_NEW);
	if (!evaluate(s, tracker, w->now - w->start))
		return 0;

	out->runnable_ns = w->now - w->runnable;
	out->entry_cpu = tracker == TRACK_OFFCPU ? slot->off_cpu : slot->entry_cpu;
	out->wait_cpu = cpu;
	if (moved) {
		s64 here = w->now - slot->here_ns;

		out->wait_cpu = here >= (s64)slot->best_ns ? slot->here_cpu : slot->best_cpu;
	}
	outlier_waker(out, slot, w->woken);
	outlier_runs(out, out->wait_cpu, w->runnable, w->now);
	if (thread_contexts)
		context_of_longest(out, w->runnable);
	if (s->wants_kernel) {
		size = bpf_get_task_stack(next, out->kernel, sizeof(out->kernel), 0);
		out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	user_defer(s, next, me);
	outlier_emit(s);
	return 0;
}

/* next returns to its CPU, after it waited for one or slept; rules have histograms of that. */
static __noinline int histogram_sched(struct task_struct *next, struct task_slot *slot, u32 tracker, u64 delay, u64 now)
{
	u32 needs, cpu = bpf_get_smp_processor_id();
	struct scratch *s = histogram_rules_of_task(tracker, next, cpu, &needs);

	if (!s)
		return 0;
	s->facts.state = 1 << state_class(slot->state);
	s->facts.preempted = !!(slot->flags & OUTLIER_PREEMPTED);
	if ((needs & NEED_CALL) && s->facts.thread == THREAD_USER)
		s->facts.syscall = task_syscall(next);
	histogram_evaluate(s, tracker, cpu, now, delay);
	return 0;
}

/* next has waited; floor is that of its tracker for such tasks. */
static __always_inline void sched_waited(struct task_struct *next, struct task_slot *slot, u32 tracker,
					 struct cpu_state *me, struct sched_wait *w, u64 floor)
{
	u64 delay = w->now - w->start;

	me->seen[tracker]++;
	histogram_stage(tracker, me, delay);
	if (histogram_rules_of(tracker))
		histogram_sched(next, slot, tracker, delay, w->now);
	if ((s64)delay >= (s64)floor)
		sched_outlier(next, slot, tracker, me, w);
}

/* The state in which slot has waited, and WAIT_TIMED. */
static __always_inline u32 waited_in(struct task_slot *slot)
{
	bool timed = slot->flags & SLOT_WOKEN && slot->waker_context == WAKER_HRTIMER;

	return slot->state | (timed ? WAIT_TIMED : 0);
}

/* next gets the CPU. */
static __always_inline void sched_switch_in(void *ctx, struct task_struct *next, u32 tid, struct cpu_state *me, u64 now)
{
	struct sched_wait w = {.now = now};
	struct task_slot *slot;
	u32 kthread;
	u64 off;

	if (!tid)
		return;
	slot = task_find(tid);
	if (!slot || !me)
		return;
	kthread = !!(next->flags & PF_KTHREAD);
	off = slot->off_ns;
	w.runnable = w.woken = slot->wake_ns;
	if (!off && !w.runnable)
		return; /* its switch-out was not seen */
	if (!w.runnable && slot->entry_cpu != WOKEN_EARLY) {
		me->unseen++; /* its wake-up was kept from every tracer: see run_ends */
		w.runnable = now;
	} else if ((s64)(w.runnable - off) < 0) {
		/*
		 * It was woken while it was being switched out, after it had
		 * left the run queue. The waker then waits for that switch
		 * (try_to_wake_up(), p->on_cpu).
		 */
		w.runnable = off;
		slot->entry_cpu = slot->off_cpu;
	}
	w.start = w.runnable;
	if (track_wakeup && w.runnable && w.runnable != now)
		sched_waited(next, slot, TRACK_WAKEUP, me, &w, floor_wakeup[kthread]);
	w.start = off;
	if (track_offcpu && off)
		sched_waited(next, slot, TRACK_OFFCPU, me, &w, floor_offcpu[kthread][state_class(slot->state)]);
	if (record_wait && off && wait_is_long(next, slot->state, w.runnable - off))
		record_wait_stack(ctx, next, me, waited_in(slot), now);
	task_clear(slot);
}

/* ----------------------------------------------------------------- timeouts */

/* Timeouts are new: p may be waiting already, and who waits was not noted. Others note it by now. */
static __always_inline void task_seed(struct task_struct *p)
{
	struct task_slot *slot = task_find(p->pid);

	if (slot)
		__sync_val_compare_and_swap(&slot->task, 0, pointer_number(p));
}

static __always_inline void task_scan(struct tick_walk *w, u32 index)
{
	struct task_slot *slot = task_slot_at(index);
	u64 off, wake, since;
	u32 class;

	if (!slot)
		return;
	off = *(volatile u64 *)&slot->off_ns;
	wake = *(volatile u64 *)&slot->wake_ns;
	if (track_wakeup && wake) {
		since = (s64)(wake - off) < 0 ? off : wake;
		timeout_check(w, TRACK_WAKEUP, index, wake, since, timeout_wakeup, &slot->wake_deadline);
	}
	if (track_offcpu && off) {
		class = state_class(slot->state);
		barrier_var(class);
		timeout_check(w, TRACK_OFFCPU, index, off, off, timeout_offcpu[class & 3], &slot->off_deadline);
	}
}

static __always_inline void expire_task(struct tick_walk *w, u32 tracker, u32 index)
{
	struct task_slot *slot = task_slot_at(index);
	bool wakeup = tracker == TRACK_WAKEUP;
	struct task_struct *task;
	u64 off, wake, start, since;
	u64 *slot_start;
	struct deadline *d;
	struct scratch *s;
	void *regs;
	u32 tid, cpu;

	if (!slot)
		return;
	slot_start = wakeup ? &slot->wake_ns : &slot->off_ns;
	d = wakeup ? &slot->wake_deadline : &slot->off_deadline;
	off = *(volatile u64 *)&slot->off_ns;
	wake = *(volatile u64 *)&slot->wake_ns;
	start = wakeup ? wake : off;
	since = wakeup && (s64)(wake - off) < 0 ? off : start;
	s = expiry_start(w, tracker, start, since, d);
	if (!s)
		return;
	tid = table_key_at(TABLE_TASKS, &task_keys, index);
	task = (struct task_struct *)slot->task;
	if (!read_task(s, task, tid) || is_self(s->facts.pid)) {
		d->due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	regs = task_regs(task);
	if (regs && s->facts.thread == THREAD_USER)
		s->out.syscall = s->facts.syscall = read_syscall(task, regs);
	s->facts.state = 1 << state_class(slot->state);
	s->facts.preempted = !!(slot->flags & OUTLIER_PREEMPTED);
	s->out.flags |= slot->flags & (OUTLIER_PREEMPTED | OUTLIER_NEW);
	evaluate(s, tracker, w->now - since);
	if (!expiry_claim(s, slot_start, d, start, since))
		return;
	if (!wakeup)
		s->out.state = slot->state;
	cpu = s->out.cpu;
	s->out.entry_cpu = wakeup ? slot->entry_cpu : slot->off_cpu;
	s->out.wait_cpu = cpu;
	if (wake) {
		s->out.runnable_ns = w->now - ((s64)(wake - off) < 0 ? off : wake);
		outlier_waker(&s->out, slot, wake);
		outlier_runs(&s->out, cpu, w->now - s->out.runnable_ns, w->now);
	}
	if (s->wants_kernel)
		read_stack(s, tid);
	if (s->wants_user)
		read_user(s, task, regs);
	outlier_emit(s);
}

#endif
