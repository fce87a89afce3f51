/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The second half of the tick: each place that is due is held against the rules,
 * with who it is and where, as far as that can be known of a task that is not
 * current.
 */
#ifndef TAILCAM_EXPIRE_H
#define TAILCAM_EXPIRE_H

#include "look.h"
#include "outlier.h"
#include "progress.h"
#include "timeout.h"

#define TICK_BUDGET_NS 1000000 /* it runs with interrupts off */
#define LATE_NS 20000000

struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak; /* 6.2+ */
void bpf_task_release(struct task_struct *p) __ksym __weak;

/* Where a stack is taken for user space, which asks one at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct task_stack);
} task_stacks SEC(".maps");

/* ----------------------------------------------------------- who, and where */

/* Registers of user space of a task that is not current. */
static __always_inline void *task_regs(struct task_struct *p)
{
	/* arch/x86/include/asm/thread_info.h, arch/arm64/include/asm/memory.h */
	const u64 thread_size = 16384;
	u64 stack = (u64)BPF_CORE_READ(p, stack);

	return stack ? (void *)(stack + thread_size - bpf_core_type_size(struct pt_regs___any)) : NULL;
}

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
	if (BPF_CORE_READ(p, on_cpu))
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

/* Where it is in user space: one frame, from which the daemon walks on. */
static __always_inline void read_user(struct scratch *s, void *regs)
{
	u64 ip = 0, sp = 0;

	if (!regs || (s->out.flags & OUTLIER_KTHREAD))
		return;
	regs_user(regs, &ip, &sp);
	s->out.user_sp = sp;
	s->out.user_fp = regs_frame(regs);
	s->out.user[0] = ip;
	s->out.user_frames = !!ip;
}

/* -------------------------------------------------------- hold it to the rules */

/* The scratch to judge pending work in; NULL: it has ended, and other work may have begun in its place since. */
static __always_inline struct scratch *expire_begin(struct tick_walk *w, u32 tracker, u64 start, u64 begin,
						    struct deadline *d)
{
	struct scratch *s;

	if (!start || (s64)(w->now - begin) < 0)
		return NULL;
	s = outlier_begin_in(SCRATCH_TICK, tracker, w->cpu, begin, w->now);
	if (!s)
		return NULL;
	deadline_begin(d, start);
	s->tick = 1;
	s->timed_out = d->fired;
	s->seen_ns = d->seen_ns;
	s->out.entry_cpu = w->cpu;
	return s;
}

/* Bits of the rules that fire and need no daemon. */
static long claim_step(u32 i, struct scratch **at)
{
	struct scratch *s = *at;
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

/* Notes that it has been looked at; true: rules fire, and these count. */
static __always_inline bool expire_claim(struct scratch *s, u64 *slot_start, struct deadline *d, u64 start, u64 begin)
{
	u64 first, again;

	d->seen_ns = s->delay_ns;
	d->due_ns = s->due_ns >= NEVER - begin ? NEVER : begin + s->due_ns;
	if (!s->fired_count)
		return false;
	s->claimed = 0;
	bpf_loop(s->fired_count, claim_step, &s, 0);
	first = s->claimed & ~s->timed_out;
	again = s->claimed & s->timed_out;
	first = deadline_fire(slot_start, d, start, first);
	if (*(volatile u64 *)slot_start != start)
		again = 0;
	s->claimed = first | again;
	return true;
}

static __always_inline void expire_task(struct tick_walk *w, u32 tracker, u32 at)
{
	struct task_slot *slot = task_slot_at(at);
	bool wakeup = tracker == TRACK_WAKEUP;
	struct task_struct *task;
	u64 off, wake, start, begin;
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
	begin = wakeup && (s64)(wake - off) < 0 ? off : start;
	s = expire_begin(w, tracker, start, begin, d);
	if (!s)
		return;
	tid = table_key_at(TABLE_TASKS, &task_keys, at);
	task = (struct task_struct *)slot->task;
	if (!read_task(s, task, tid) || s->facts.pid == self_pid) {
		d->due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	regs = task_regs(task);
	if (regs && s->facts.thread == THREAD_USER)
		s->out.syscall = s->facts.syscall = regs_syscall(regs);
	s->facts.state = 1 << state_class(slot->state);
	s->facts.preempted = !!(slot->flags & OUTLIER_PREEMPTED);
	s->out.flags |= slot->flags & (OUTLIER_PREEMPTED | OUTLIER_NEW);
	evaluate(s, tracker, w->now - begin);
	if (!expire_claim(s, slot_start, d, start, begin))
		return;
	if (!wakeup)
		s->out.state = slot->state;
	cpu = s->out.cpu;
	s->out.entry_cpu = wakeup ? slot->entry_cpu : slot->off_cpu;
	s->out.wait_cpu = cpu;
	if (wake) {
		s->out.runnable_ns = w->now - ((s64)(wake - off) < 0 ? off : wake);
		outlier_waker(&s->out, slot, wake);
		outlier_ran(&s->out, cpu, w->now - s->out.runnable_ns, w->now);
	}
	if (s->wants_kernel)
		read_stack(s, tid);
	if (s->wants_user)
		read_user(s, regs);
	outlier_emit(s);
}

static __always_inline void expire_call(struct tick_walk *w, u32 at)
{
	struct call_slot *slot = call_slot_at(at);
	struct task_struct *task;
	struct scratch *s;
	u64 start;
	u32 tid;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expire_begin(w, TRACK_SYSCALL, start, start, &slot->deadline);
	if (!s)
		return;
	tid = table_key_at(TABLE_CALLS, &call_keys, at);
	task = (struct task_struct *)slot->task;
	if (!read_task(s, task, tid) || s->facts.pid == self_pid) {
		slot->deadline.due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	s->out.syscall = s->facts.syscall = slot->nr;
	s->out.entry_cpu = slot->cpu;
	evaluate(s, TRACK_SYSCALL, w->now - start);
	if (!expire_claim(s, &slot->start_ns, &slot->deadline, start, start))
		return;
	if (s->wants_kernel)
		read_stack(s, tid);
	if (s->wants_user)
		read_user(s, task_regs(task));
	if (progress_stacks && s->wants_progress)
		progress_send(tid, start);
	outlier_emit(s);
}

static __always_inline void expire_request(struct tick_walk *w, u32 at)
{
	struct request_slot *slot = request_slot_at(at);
	struct request *rq;
	struct gendisk *disk;
	struct scratch *s;
	u64 start, queued;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->issue_ns;
	s = expire_begin(w, TRACK_BLOCK, start, start, &slot->deadline);
	if (!s)
		return;
	rq = (struct request *)table_key_at(TABLE_REQUESTS, &request_keys, at);
	if (slot->pid == self_pid) {
		slot->deadline.due_ns = NEVER;
		return;
	}
	outlier_request(s, slot);
	s->out.cpu = s->facts.cpu = slot->cpu; /* nobody knows where it will complete */
	s->out.cmd_flags = slot->cmd_flags;
	s->facts.op = 1 << op_class(slot->cmd_flags);
	disk = BPF_CORE_READ(rq, q, disk);
	s->out.dev = s->facts.dev = disk ? (u32)BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor) : 0;
	evaluate(s, TRACK_BLOCK, w->now - start);
	if (!expire_claim(s, &slot->issue_ns, &slot->deadline, start, start))
		return;
	queued = slot->insert_ns ? slot->insert_ns : BPF_CORE_READ(rq, start_time_ns);
	if (queued && (s64)(start - queued) > 0)
		s->out.queue_ns = start - queued;
	if (disk)
		bpf_probe_read_kernel_str(s->out.disk, sizeof(s->out.disk), disk->disk_name);
	if (s->wants_kernel) /* whoever asked for it often waits for it */
		read_stack(s, slot->tid);
	outlier_emit(s);
}

static long expire_step(u32 i, struct tick_walk *w)
{
	struct due_place *p = bpf_map_lookup_elem(&due_places, &i);
	u64 spent;

	if (!p)
		return 1;
	if (p->tracker == TRACK_SYSCALL)
		expire_call(w, p->at);
	else if (p->tracker == TRACK_BLOCK)
		expire_request(w, p->at);
	else if (p->tracker != TRACK_PAIR && p->tracker != TRACK_SPAN)
		expire_task(w, p->tracker, p->at);
	spent = bpf_ktime_get_ns() - w->now;
	if (spent < TICK_BUDGET_NS)
		return 0;
	ticker.truncated++;
	return 1;
}

#endif
