/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The wakeup and offcpu trackers. A task that leaves its CPU gets a place in
 * the pending table; a waker notes itself there; the switch back to the task
 * reads both delays and frees the place.
 */
#ifndef TAILCAM_SCHED_H
#define TAILCAM_SCHED_H

#include "histogram.h"
#include "outlier.h"
#include "grow.h"
#include "timeout.h"
#include "user_stack.h"
#include "waker_stack.h"

/* task_slot.flags, beside enum outlier_flag */
#define SLOT_MOVED (1u << 31) /* the second cache line holds something */
#define SLOT_WOKEN (1u << 30) /* the waker is noted */

/* task_slot.entry_cpu of a task that was woken before its leave was seen */
#define WOKEN_EARLY 0xffff

static __always_inline struct task_slot *task_slot_at(int at)
{
	return SLOT_AT(&task_slots, &more_task_slots, at);
}

/* Between two waits a task keeps its place, empty; only its death frees it. */
static __always_inline void task_clear(struct task_slot *slot)
{
	slot->off_ns = 0;
	slot->wake_ns = 0;
	slot->flags = 0;
	slot->entry_cpu = 0;
}

/* The last switch of a task: nothing of it may stay. True: something was there. */
static __always_inline bool task_dies(u32 tid)
{
	int at = table_find(TABLE_TASKS, &task_keys, task_mask, tid, NUMBERED);
	struct task_slot *slot;

	if (at < 0)
		return false;
	slot = task_slot_at(at);
	if (!slot)
		return false;
	task_clear(slot);
	table_release(TABLE_TASKS, &task_keys, at);
	return true;
}

/* The place of a task that leaves its CPU, empty but for a waker that was faster. */
static __always_inline struct task_slot *task_claim(u32 tid, u32 tracker, struct cpu_state *me)
{
	struct task_slot *slot;
	bool fresh;
	int at;

	at = table_claim(TABLE_TASKS, &task_keys, task_mask, tid, NUMBERED, &fresh);
	if (at < 0) {
		if (me)
			__sync_fetch_and_add(&me->table_full[tracker], 1);
		return NULL;
	}
	slot = task_slot_at(at);
	if (!slot)
		return NULL;
	if (fresh)
		slot->entry_cpu = WOKEN_EARLY; /* nobody could note it: assume so */
	if (!slot->off_ns && !slot->wake_ns)
		return slot;
	/* Its return to a CPU was not seen: what stands here is of an earlier wait. */
	if (me)
		__sync_fetch_and_add(&me->replaced[tracker], 1);
	task_clear(slot);
	return slot;
}

/* ----------------------------------------------------------------- events */

/* prev leaves the CPU. */
static __always_inline void sched_leave(struct task_struct *prev, bool preempt, u32 prev_state, u32 cpu,
					struct cpu_state *me, u64 now)
{
	u32 tid = prev->pid;
	struct task_slot *slot;
	bool runnable;

	if (!tid)
		return;
	if (prev_state & TASK_DEAD) {
		task_dies(tid);
		return;
	}
	/*
	 * Up to 6.11 prev_state is read before __schedule() finds a pending
	 * signal and lets the task go on; __state tells (kernel/sched/core.c).
	 */
	runnable = preempt || !prev_state || !prev->__state;
	if (runnable && !track_wakeup)
		return;
	slot = task_claim(tid, runnable ? TRACK_WAKEUP : TRACK_OFFCPU, me);
	if (!slot)
		return;
	if (timeouts)
		slot->task = task_number(prev);
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

/* The interrupt that runs on top of the current task, if the recorder watches interrupts. */
static __always_inline u16 waker_context(struct cpu_state *me, u32 tid)
{
	if (!me)
		return WAKER_TASK;
	if (me->in_irq)
		return me->in_irq;
	/* On real-time kernels these run in threads, which others may preempt. */
	if (me->in_hrtimer && me->hrtimer_tid == tid)
		return me->in_hrtimer;
	if (me->in_softirq && me->softirq_tid == tid)
		return me->in_softirq;
	return WAKER_TASK;
}

/* Notes current as the one who makes p runnable. */
static __always_inline void note_waker(struct task_slot *slot, struct task_struct *p, u32 cpu)
{
	struct task_struct *waker = bpf_get_current_task_btf();

	slot->waker_tid = waker->pid;
	slot->waker_pid = waker->tgid;
	slot->waker_cpu = cpu;
	slot->flags |= SLOT_WOKEN;
	slot->waker_context = waker_context(this_cpu(cpu), waker->pid);
	slot->entry_cpu = p->thread_info.cpu;
	COPY_COMM(slot->waker_comm, waker);
}

/* p becomes runnable; current is the waker. */
static __always_inline void sched_wake(void *ctx, struct task_struct *p, u32 cpu, u64 now)
{
	int at = table_find(TABLE_TASKS, &task_keys, task_mask, (u32)p->pid, NUMBERED);
	struct task_slot *slot;

	if (at < 0)
		return; /* not known yet */
	slot = task_slot_at(at);
	if (!slot || slot->wake_ns)
		return; /* runnable already */
	if (!slot->off_ns) {
		slot->entry_cpu = WOKEN_EARLY; /* on its CPU still */
		return;
	}
	note_waker(slot, p, cpu);
	if ((waker_stacks_always && waker_stacks_wanted) ||
	    (waker_stacks_slow && slot->off_ns &&
	     (s64)(now - slot->off_ns) >= (s64)floor_offcpu[!!(p->flags & PF_KTHREAD)][state_class(slot->state)]))
		waker_stack_keep(ctx, p->pid, cpu, now);
	slot->wake_ns = now;
}

/* p is put on a run queue for the first time. */
static __always_inline void sched_wake_new(void *ctx, struct task_struct *p, u32 cpu, u64 now)
{
	struct task_slot *slot;

	slot = task_claim(p->pid, TRACK_WAKEUP, this_cpu(cpu));
	if (!slot)
		return;
	slot->flags = OUTLIER_NEW;
	if (timeouts)
		slot->task = task_number(p);
	note_waker(slot, p, cpu);
	if (waker_stacks_always && waker_stacks_wanted)
		waker_stack_keep(ctx, p->pid, cpu, now);
	slot->wake_ns = now;
}

/* p moves to another CPU's run queue while it waits. */
static __always_inline void sched_move(struct task_struct *p, u32 to, u64 now)
{
	int at = table_find(TABLE_TASKS, &task_keys, task_mask, (u32)p->pid, NUMBERED);
	struct task_slot *slot;
	u64 here;

	if (at < 0)
		return;
	slot = task_slot_at(at);
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

/* --------------------------------------------------------------- outliers */

struct ran_walk {
	struct outlier *out;
	struct cpu_state *cpu;
	u64 since;
	u64 until; /* the end of the segment in hand */
	u64 head;
};

/*
 * Adds one segment of a CPU's run history, newest first, to its task's account,
 * until before the wait. Accounts are few: where two tasks meet in one, the
 * longer stays, so whoever ran for most of the wait is among them.
 */
static long ran_step(u32 i, struct ran_walk *w)
{
	struct run_segment *from = &w->cpu->segments[(w->head - 1 - i) & (RUN_HISTORY - 1)];
	u64 start = from->start_ns;
	struct run_total *account;
	u32 tid = from->tid;
	s64 ns;

	if (!start)
		return 1;
	ns = w->until - ((s64)(start - w->since) > 0 ? start : w->since);
	if (ns > 0) {
		account = &w->out->runs[tid & (TOP_RUNS - 1)];
		if (account->ns && account->tid == tid) {
			account->ns += ns;
		} else if (account->ns < (u64)ns) {
			account->ns = ns;
			account->tid = tid;
			account->pid = from->pid;
			__builtin_memcpy(account->comm, from->comm, TASK_COMM_LEN);
		}
	}
	w->until = start;
	return (s64)(start - w->since) <= 0;
}

/* Who ran on the CPU where the task waited, from since to now. */
static __always_inline void outlier_ran(struct outlier *out, u32 cpu, u64 since, u64 now)
{
	struct cpu_state *there = this_cpu(cpu);
	struct ran_walk w = {.out = out, .cpu = there, .since = since, .until = now};

	if (!there)
		return;
	__builtin_memset(out->runs, 0, sizeof(out->runs));
	w.head = there->switches;
	bpf_loop(RUN_HISTORY, ran_step, &w, 0);
}

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
	__builtin_memcpy(out->waker_comm, slot->waker_comm, TASK_COMM_LEN);
}

/*
 * The floor is passed. next is the slow task and not current: its kernel stack
 * is that of a task off its CPU, its user stack follows later.
 */
static __always_inline void sched_outlier(struct task_struct *next, struct task_slot *slot, u32 tracker, u32 cpu,
					  struct cpu_state *me, u64 start, u64 runnable, u64 woken, u64 now)
{
	struct scratch *s = outlier_begin(tracker, cpu, start, now);
	bool moved = slot->flags & SLOT_MOVED;
	struct outlier *out;
	u64 timed_out;
	long size;

	if (tracker == TRACK_WAKEUP)
		timed_out = deadline_take(&slot->wake_ns, &slot->wake_deadline);
	else
		timed_out = deadline_take(&slot->off_ns, &slot->off_deadline);
	if (!s)
		return;
	s->timed_out = timed_out;
	out = &s->out;
	outlier_task(s, next);
	if (s->facts.pid == self_pid)
		return;
	if (!(next->flags & PF_KTHREAD))
		out->syscall = s->facts.syscall = task_syscall(next);
	out->state = slot->state;
	s->facts.state = 1 << state_class(slot->state);
	s->facts.preempted = !!(slot->flags & OUTLIER_PREEMPTED);
	out->flags |= slot->flags & (OUTLIER_PREEMPTED | OUTLIER_NEW);
	if (!evaluate(s, tracker, now - start))
		return;

	out->runnable_ns = now - runnable;
	out->entry_cpu = tracker == TRACK_OFFCPU ? slot->off_cpu : slot->entry_cpu;
	out->wait_cpu = cpu;
	if (moved) {
		s64 here = now - slot->here_ns;

		out->wait_cpu = here >= (s64)slot->best_ns ? slot->here_cpu : slot->best_cpu;
	}
	outlier_waker(out, slot, woken);
	outlier_ran(out, out->wait_cpu, runnable, now);
	if (s->wants_kernel) {
		size = bpf_get_task_stack(next, out->kernel, sizeof(out->kernel), 0);
		out->kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (s->wants_user && !(next->flags & PF_KTHREAD))
		user_stack_later(out, next, me);
	outlier_emit(s);
}

/* next gets the CPU. */
static __always_inline void sched_arrive(struct task_struct *next, u32 cpu, struct cpu_state *me, u64 now)
{
	u32 kthread = !!(next->flags & PF_KTHREAD);
	u32 tid = next->pid;
	struct task_slot *slot;
	u64 off, woken, runnable;
	int at;

	if (!tid)
		return;
	at = table_find(TABLE_TASKS, &task_keys, task_mask, tid, NUMBERED);
	if (at < 0)
		return;
	slot = task_slot_at(at);
	if (!slot || !me)
		return;
	off = slot->off_ns;
	runnable = woken = slot->wake_ns;
	if (!off && !runnable)
		return; /* its leave was not seen */
	if (!runnable && slot->entry_cpu != WOKEN_EARLY) {
		me->unseen++; /* its wake-up was kept from every tracer: see run_history */
		runnable = now;
	} else if ((s64)(runnable - off) < 0) {
		/*
		 * It was woken while it was being switched out, after it had
		 * left the run queue. The waker then waits for that switch
		 * (try_to_wake_up(), p->on_cpu).
		 */
		runnable = off;
		slot->entry_cpu = slot->off_cpu;
	}
	if (track_wakeup && runnable && runnable != now) {
		me->seen[TRACK_WAKEUP]++;
		histogram_sched(next, slot->state, slot->flags & OUTLIER_PREEMPTED, TRACK_WAKEUP, cpu, now,
				now - runnable);
		if ((s64)(now - runnable) >= (s64)floor_wakeup[kthread])
			sched_outlier(next, slot, TRACK_WAKEUP, cpu, me, runnable, runnable, woken, now);
	}
	if (track_offcpu && off) {
		me->seen[TRACK_OFFCPU]++;
		histogram_sched(next, slot->state, slot->flags & OUTLIER_PREEMPTED, TRACK_OFFCPU, cpu, now, now - off);
		if ((s64)(now - off) >= (s64)floor_offcpu[kthread][state_class(slot->state)])
			sched_outlier(next, slot, TRACK_OFFCPU, cpu, me, off, runnable, woken, now);
	}
	task_clear(slot);
}

/*
 * next runs on this CPU from now on; the history answers "who ran instead".
 * Some machines keep switches and wake-ups from every tracer: then prev is not
 * who got the CPU last (docs/decisions/0001-pending-table.md).
 */
static __always_inline void run_history(struct task_struct *prev, struct task_struct *next, struct cpu_state *me,
					u64 now)
{
	struct run_segment *last = &me->segments[(me->switches - 1) & (RUN_HISTORY - 1)];
	struct run_segment *ran = &me->segments[me->switches & (RUN_HISTORY - 1)];

	if (last->start_ns && last->tid != prev->pid)
		me->unseen++;
	ran->start_ns = now;
	ran->tid = next->pid;
	ran->pid = next->tgid;
	COPY_COMM(ran->comm, next);
	me->switches++;
}

#endif
