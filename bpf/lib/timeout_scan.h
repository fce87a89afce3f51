/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How the tick finds pending work that is too old, and holds it against the rules,
 * with who it is and where, as far as that can be known of a task that is not current.
 */
#ifndef TAILCAM_TIMEOUT_SCAN_H
#define TAILCAM_TIMEOUT_SCAN_H

#include "lib/outlier.h"
#include "lib/stacks.h"
#include "lib/task.h"
#include "lib/timeout.h"

#define MAX_DUE 1024 /* slots in one tick */
#define LATE_NS 20000000

/* The kernel hands out tasks by their id (bpf_task_from_pid). */
const volatile bool task_kfuncs;

/* The least timeout of each pending table: work that starts now cannot be due before. */
volatile u64 timeout_least[TIMEOUT_TABLES];

struct due_slot {
	u32 tracker;
	u32 index;
};

/* Slots that are due in this tick; written and read by the tick. Fixed size. */
MAP(due_slots, ARRAY, 0, MAX_DUE, u32, struct due_slot);

/* When something in a chunk of a pending table may be due; written by the tick. Fixed size. */
MAP(chunks, ARRAY, 0, TABLES *SEGMENTS *MAX_CHUNKS, u32, struct chunk);

volatile struct tick_state ticker;

struct tick_walk {
	u64 now;
	u64 next; /* nothing else in the chunk can be due before */
	u32 table;
	u32 base; /* first bucket of the chunk */
	u32 due;  /* slots collected */
	u32 force;
	u32 bucket;
	u32 segment;
	u32 over;   /* enough for one tick */
	u32 looked; /* through a chunk in this tick */
	u32 cpu;
};

/* Collects a slot if its work, pending since then, is due. */
static __always_inline void timeout_check(struct tick_walk *w, u32 tracker, u32 index, u64 start, u64 since,
					  u64 timeout, struct deadline *d)
{
	struct due_slot *p;
	u64 next = since + timeout;
	u32 n = w->due;

	if ((s64)timeout == (s64)NEVER)
		return;
	if ((s64)(w->now - next) >= 0) {
		if (w->force || d->for_ns != start || d->due_ns <= w->now) {
			p = bpf_map_lookup_elem(&due_slots, &n);
			if (!p)
				return;
			p->tracker = tracker;
			p->index = index;
			w->due++;
			return;
		}
		next = d->due_ns;
	}
	if (next < w->next)
		w->next = next;
}

/* ----------------------------------------------------------- who, and where */

/* Fills in who it is, from a task that may be gone; false: it is. */
static __always_inline bool read_task(struct scratch *s, struct task_struct *p, u32 tid)
{
	bool kthread;

	if (!p || (u32)BPF_CORE_READ(p, pid) != tid)
		return false;
	kthread = BPF_CORE_READ(p, flags) & PF_KTHREAD;
	s->out.tid = s->facts.tid = tid;
	s->out.cpu = s->facts.cpu = BPF_CORE_READ(p, thread_info.cpu);
	s->out.pid = s->facts.pid = BPF_CORE_READ(p, tgid);
	s->out.uid = s->facts.uid = BPF_CORE_READ(p, cred, uid.val);
	s->out.cgroup_id = s->facts.cgroup_id = BPF_CORE_READ(p, cgroups, dfl_cgrp, kn, id);
	bpf_probe_read_kernel(s->facts.comm, TASK_COMM_LEN, p->comm);
	__builtin_memcpy(s->out.comm, s->facts.comm, TASK_COMM_LEN);
	s->facts.thread = kthread ? THREAD_KERNEL : THREAD_USER;
	s->out.state = BPF_CORE_READ(p, __state);
	s->out.user_switches = BPF_CORE_READ(p, nvcsw) + BPF_CORE_READ(p, nivcsw);
	if (read_on_cpu(p))
		s->out.flags |= OUTLIER_RUNNING;
	if (kthread)
		s->out.flags |= OUTLIER_KTHREAD;
	return true;
}

/* Where it is now. Of a task that runs, nobody knows. */
static __always_inline void read_stack(struct scratch *s, u32 tid)
{
	struct task_struct *p;
	long size;

	if (s->out.flags & OUTLIER_RUNNING)
		return;
	if (!task_kfuncs) {
		s->out.flags |= OUTLIER_NO_STACK;
		return;
	}
	p = bpf_task_from_pid(tid);
	if (!p)
		return;
	size = bpf_get_task_stack(p, s->out.kernel, sizeof(s->out.kernel), 0);
	s->out.kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	bpf_task_release(p);
}

/* Where it is in user space: its registers, which hold until it runs. */
static __always_inline void read_user(struct scratch *s, struct task_struct *p, void *regs)
{
	if (regs && !(s->out.flags & OUTLIER_KTHREAD))
		user_registers(&s->out, p, regs);
}

/* -------------------------------------------------------- against the rules */

/* The scratch to judge pending work in; NULL: it has ended, and its slot may hold other work by now. */
static __always_inline struct scratch *expiry_start(struct tick_walk *w, u32 tracker, u64 start, u64 since,
						    struct deadline *d)
{
	struct scratch *s;

	if (!start || (s64)(w->now - since) < 0)
		return NULL;
	s = outlier_init_in(SCRATCH_TICK, tracker, w->cpu, since, w->now);
	if (!s)
		return NULL;
	deadline_reset(d, start);
	s->tick = 1;
	s->timed_out = d->fired;
	s->seen_ns = d->seen_ns;
	s->out.entry_cpu = w->cpu;
	return s;
}

/* Bits of the rules that fire and need no daemon. */
static long expiry_claim_step(u32 i, struct scratch **arg)
{
	struct scratch *s = *arg;
	u64 bit, late;

	if (i >= MAX_RULES)
		return 1;
	if (s->fired[i].undecided)
		return 0;
	bit = 1ULL << (s->fired[i].id & 63);
	s->claimed |= bit;
	if (s->timed_out & bit)
		return 0;
	late = s->delay_ns - s->fired[i].threshold_ns;
	if (late > LATE_NS)
		ticker.late++;
	if (late > ticker.latest_ns)
		ticker.latest_ns = late;
	return 0;
}

/* Notes that it was checked; true: rules fire, and these count. */
static __always_inline bool expiry_claim(struct scratch *s, u64 *slot_start, struct deadline *d, u64 start, u64 since)
{
	u64 first, again;

	d->seen_ns = s->delay_ns;
	d->due_ns = s->due_ns >= NEVER - since ? NEVER : since + s->due_ns;
	if (!s->fired_count)
		return false;
	s->claimed = 0;
	bpf_loop(s->fired_count, expiry_claim_step, &s, 0);
	first = s->claimed & ~s->timed_out;
	again = s->claimed & s->timed_out;
	first = deadline_fire(slot_start, d, start, first);
	if (*(volatile u64 *)slot_start != start)
		again = 0;
	s->claimed = first | again;
	return true;
}

#endif
