/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Switches while wakers are shed (docs/budget.md): no program runs at a wake-up. Since when a
 * task is on a run queue the scheduler notes itself, by that queue's clock, so that most
 * switches need neither a clock nor a slot. Who woke the task, and who ran instead, nobody
 * knows then.
 */
#ifndef TAILCAM_TRACKER_SCHED_SHED_H
#define TAILCAM_TRACKER_SCHED_SHED_H

#include "trackers/sched.h"

/* Written by the daemon, before it detaches the programs at wake-ups, and after it has attached them again. */
volatile u32 wakers_shed;

/* Whether a rule tells of tasks that sleep like this. */
static __always_inline bool sleep_tracked(struct task_struct *prev, u32 prev_state)
{
	return floor_offcpu[!!(prev->flags & PF_KTHREAD)][state_class(prev_state)] < NEVER;
}

/* prev leaves the CPU. */
static __always_inline void shed_switch_out(struct task_struct *prev, u32 tid, bool preempt, u32 prev_state, u32 cpu,
					    struct cpu_state *me)
{
	bool tracked;

	run_stops(me);
	if (!tid)
		return;
	if (!(prev_state & TASK_DEAD)) {
		tracked = task_runnable(prev, preempt, prev_state) ? track_wakeup
								   : track_offcpu && sleep_tracked(prev, prev_state);
		if (!tracked)
			return;
	}
	sched_switch_out(prev, tid, preempt, prev_state, cpu, me, bpf_ktime_get_ns());
}

/* next has waited for long, as the scheduler says, or slept as a rule has it. */
static __always_inline void shed_waited(struct task_struct *next, struct task_slot *slot, struct cpu_state *me,
					u64 delay)
{
	struct sched_wait w = {.now = bpf_ktime_get_ns()};
	u32 tid = next->pid, cpu = bpf_get_smp_processor_id();
	u32 kthread = !!(next->flags & PF_KTHREAD);
	u64 off;

	if (!slot)
		slot = task_claim(tid, TRACK_WAKEUP, me);
	if (!slot)
		return;
	off = slot->off_ns;
	if ((s64)delay < 0)
		delay = 0; /* the clock was read before that of another CPU */
	w.runnable = w.now - delay;
	if (!slot->wake_ns)
		slot->entry_cpu = cpu; /* to which it was moved last */
	w.start = w.runnable;
	if (track_wakeup && (s64)delay >= (s64)floor_wakeup[kthread])
		sched_outlier(next, slot, TRACK_WAKEUP, me, &w);
	w.start = off;
	if (track_offcpu && off) {
		me->seen[TRACK_OFFCPU]++;
		if ((s64)(w.now - off) >= (s64)floor_offcpu[kthread][state_class(slot->state)])
			sched_outlier(next, slot, TRACK_OFFCPU, me, &w);
	}
	task_clear(slot);
}

/* next gets the CPU. */
static __always_inline void shed_switch_in(struct task_struct *next, u32 tid, struct cpu_state *me)
{
	struct task_slot *slot;
	u64 delay;

	if (!tid)
		return;
	delay = queued_for(next);
	if (track_wakeup && delay)
		me->seen[TRACK_WAKEUP]++;
	slot = task_find(tid);
	if ((slot && slot->off_ns) || (track_wakeup && (s64)delay >= (s64)floor_wakeup[!!(next->flags & PF_KTHREAD)]))
		shed_waited(next, slot, me, delay);
	else if (slot && slot->wake_ns)
		task_clear(slot);
}

#endif
