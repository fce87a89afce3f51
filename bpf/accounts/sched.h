/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Time of a token's threads: on a CPU, runnable, blocked and why. These run with the lock
 * of a run queue held: nothing here allocates.
 *
 * A thread that carries a token is on its CPU, or off it. Off it, it is runnable, or blocked
 * and then runnable; both are credited at the switch back to it, to the token that it
 * carried when it left. On it, user space credits what went by at a switch of tokens, and
 * we the rest at the switch-out.
 */
#ifndef TAILCAM_ACCOUNT_SCHED_H
#define TAILCAM_ACCOUNT_SCHED_H

#include "accounts/carried.h"
#include "accounts/declared.h"
#include "accounts/hardware.h"
#include "accounts/lock.h"
#include "accounts/slice.h"
#include "lib/task.h"

/* What percpu_* of lib/core_fixes.h are offsets from, on each CPU; 0: not known yet. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} activity_cpu_base SEC(".maps");

/* ------------------------------------------------------------- switch-out */

/* Why prev, which is not runnable, waits; 0: only who wakes it knows. It carries its token since then. */
static __always_inline u32 blocked_cause(struct task_struct *prev, u64 carried_ns)
{
	void *regs;
	bool compat;
	s32 nr;

	if (account_locks && lock_waits(prev, carried_ns))
		return ACTIVITY_BLOCKED_KERNEL_LOCK_NS;
	if (prev->flags & PF_MEMALLOC)
		return ACTIVITY_BLOCKED_RECLAIM_NS;
	if (task_iowait(prev))
		return ACTIVITY_BLOCKED_DISK_NS;
	regs = (void *)bpf_task_pt_regs(prev);
	if (!regs)
		return 0;
	nr = trusted_syscall(regs);
	if (nr < 0) /* an exception */
		return ACTIVITY_BLOCKED_FAULT_NS;
	compat = task_compat(prev, regs);
	if (is_lock_call(nr, compat))
		return ACTIVITY_BLOCKED_LOCK_NS;
	return is_sleep_call(nr, compat) ? ACTIVITY_BLOCKED_TIMER_NS : 0;
}

static __always_inline u32 leave_cause(struct task_struct *prev, u64 carried_ns, bool preempt, u32 prev_state)
{
	if (!task_runnable(prev, preempt, prev_state))
		return blocked_cause(prev, carried_ns);
	return task_throttled(prev) ? ACTIVITY_RUNNABLE_THROTTLED_NS : ACTIVITY_RUNNABLE_PREEMPTED_NS;
}

/* Notes which switch of tokens the kernel side has seen, for the thread itself, and for the daemon. */
static __always_inline void account_seen(struct task_struct *prev, struct account_thread *thread, u32 seq, u64 now)
{
	struct activity_thread_state *state = thread->state;

	if (state->tid == thread->tid && state->seen_seq == seq)
		return;
	carried_note(prev, thread, &thread->shared->half[seq & 1], &thread->shared->half[(seq + 1) & 1], seq, now);
	if (state->tid != thread->tid)
		state->away_ns = 0;
	state->tid = thread->tid;
	state->seen_seq = seq;
	state->seen_slice = state->slices;
	state->seen_ns = state->slice_ns;
}

/* prev leaves the CPU. */
static __always_inline void account_switch_out(struct task_struct *prev, bool preempt, u32 prev_state, u64 now)
{
	u32 seq, cpu = bpf_get_smp_processor_id();
	struct activity_thread_state *state;
	struct activity_account *account;
	struct account_thread thread;
	struct account_slice slice;
	struct activity_half half;

	if (!account_thread_of(prev, &thread))
		return;
	state = thread.state;
	seq = *(volatile u32 *)&thread.shared->seq;
	half = thread.shared->half[seq & 1];
	account = account_of_token(&thread.process, half.token, half.generation);
	slice_end(&thread, prev, half.since_ns, clock_stopped(prev, cpu), now, &slice);
	slice_credit(&thread.process, account, &slice);
	hardware_credit(&thread, account, half.since_ns);
	if (account) {
		account_add(account, ACTIVITY_SWITCHES, 1);
		if (preempt)
			account_add(account, ACTIVITY_PREEMPTIONS, 1);
	}
	account_seen(prev, &thread, seq, now);
	state->token = account ? half.token : 0;
	state->generation = half.generation;
	state->cause = leave_cause(prev, half.since_ns, preempt, prev_state);
	state->waking_ns = 0;
	state->runtime_ns = prev->se.sum_exec_runtime;
	barrier();
	*(volatile u64 *)&state->out_ns = slice.end;
}

/* ---------------------------------------------------------------- wake-up */

/* Why p waited, as its waker tells. in: what runs on top of that (enum running_in). */
static __always_inline u32 waker_cause(struct task_struct *waker, u32 in, u64 base)
{
	bool backlog;

	if (in == IN_UNKNOWN)
		return ACTIVITY_BLOCKED_OTHER_NS;
	if (in & IN_HARDIRQ)
		return in_timer_interrupt(base) ? ACTIVITY_BLOCKED_TIMER_NS : ACTIVITY_BLOCKED_OTHER_NS;
	if (in)
		return receives_packets(base, &backlog) ? ACTIVITY_BLOCKED_NETWORK_NS : ACTIVITY_BLOCKED_TIMER_NS;
	if (waker->flags & PF_WQ_WORKER)
		return ACTIVITY_BLOCKED_WORK_NS;
	return waker->pid ? ACTIVITY_BLOCKED_TASK_NS : ACTIVITY_BLOCKED_OTHER_NS;
}

/* p becomes runnable. */
static __always_inline void account_woken(struct task_struct *p, u32 cause, u64 now)
{
	struct activity_thread_state *state;
	struct account_thread thread;

	if (!account_thread_of(p, &thread))
		return;
	state = thread.state;
	if (state->tid != thread.tid || state->waking_ns)
		return;
	state->waker = cause;
	if (*(volatile u64 *)&state->out_ns)
		state->waking_ns = now;
	else
		state->early_ns = now; /* on its way out: see account_waited */
}

static __always_inline void account_waking(struct task_struct *waker, struct task_struct *p)
{
	bool wakes = account_may(waker), woken = account_may(p);
	struct activity_account *account;
	u32 in, zero = 0;
	u64 *base;

	if (!wakes && !woken)
		return;
	base = bpf_map_lookup_elem(&activity_cpu_base, &zero);
	if (!base)
		return;
	in = running_in(waker, percpu_base(waker, base, bpf_get_smp_processor_id()));
	if (wakes && !in) {
		account = account_of(waker);
		if (account)
			account_add(account, ACTIVITY_WAKEUPS, 1);
	}
	if (woken)
		account_woken(p, waker_cause(waker, in, *base), bpf_ktime_get_ns());
}

/* -------------------------------------------------------------- switch-in */

/* Credits what went by since the thread has left its CPU. */
static __always_inline void account_waited(struct activity_account *account, struct activity_thread_state *state,
					   u64 now)
{
	u64 out = state->out_ns, woken = state->waking_ns;
	u32 cause = state->cause;

	if (now <= out)
		return;
	if (cause >= ACTIVITY_RUNNABLE_NS && cause < ACTIVITY_BLOCKED_NS) {
		account_add(account, ACTIVITY_RUNNABLE_NS, now - out);
		account_add(account, cause, now - out);
		return;
	}
	/* Woken once it had left its run queue, before the switch: nobody did so since, but it runs. */
	if (!woken)
		woken = state->early_ns ? out : now;
	if (woken < out)
		woken = out;
	if (woken > now)
		woken = now;
	if (!cause)
		cause = state->waker ?: ACTIVITY_BLOCKED_OTHER_NS;
	if (woken > out) {
		account_add(account, ACTIVITY_BLOCKED_NS, woken - out);
		account_add(account, cause, woken - out);
	}
	if (now > woken) {
		account_add(account, ACTIVITY_RUNNABLE_NS, now - woken);
		account_add(account, ACTIVITY_RUNNABLE_WOKEN_NS, now - woken);
	}
}

/* next has left its CPU, and nobody was told: what it ran is known, and not why it waited. */
static __always_inline void account_unseen_end(struct account_thread *thread, u64 ran, u64 now)
{
	struct activity_thread_state *state = thread->state;
	struct activity_account *account;
	u64 begin = state->slice_ns, before;
	struct activity_half half;

	if (now <= begin || ran > now - begin + SLICE_SWITCH_NS)
		return;
	if (ran > now - begin) /* its clock has begun before the hook */
		ran = now - begin;
	state->away_ns += now - begin - ran;
	account_carried(thread->shared, &half);
	before = half.since_ns > begin ? half.since_ns - begin : 0;
	account = ran > before ? account_of_token(&thread->process, half.token, half.generation) : NULL;
	if (account)
		account_add(account, ACTIVITY_CPU_NS, ran - before);
}

/* next has been off its CPU; or it has run meanwhile, of which nobody was told: then why it waited is not known. */
static __always_inline void account_off(struct account_thread *thread, u64 ran, u64 now)
{
	struct activity_thread_state *state = thread->state;
	struct activity_account *account;
	struct activity_half half;

	if (ran > now - state->out_ns + SLICE_SWITCH_NS)
		ran = 0;	       /* not of one thread */
	if (ran > now - state->out_ns) /* its clock has begun before the hook */
		ran = now - state->out_ns;
	state->away_ns += now - state->out_ns - ran;
	account_carried(thread->shared, &half);
	if (!state->token || half.since_ns > state->out_ns) /* tokens were switched meanwhile */
		return;
	account = account_of_token(&thread->process, state->token, state->generation);
	if (!account)
		return;
	if (ran)
		account_add(account, ACTIVITY_CPU_NS, ran);
	else
		account_waited(account, state, now);
}

/* next gets the CPU. */
static __always_inline void account_switch_in(struct task_struct *next, u64 now)
{
	struct activity_thread_state *state;
	struct account_thread thread;
	u64 ran;

	if (!account_thread_of(next, &thread))
		return;
	state = thread.state;
	ran = next->se.sum_exec_runtime - state->runtime_ns;
	if (now < state->out_ns && state->tid == thread.tid)
		now = state->out_ns; /* see slice_end */
	if (state->tid == thread.tid && state->out_ns)
		account_off(&thread, ran, now);
	else if (state->tid == thread.tid)
		account_unseen_end(&thread, ran, now);
	state->runtime_ns = next->se.sum_exec_runtime;
	hardware_begin(state);
	state->slice_ns = now;
	state->waking_ns = state->early_ns = 0;
	state->waker = state->cause = 0;
	state->out_ns = 0;
	barrier();
	*(volatile u32 *)&state->slices = state->slices + 1;
}

/* ------------------------------------------------- fork, exec, exit */

static __always_inline void account_give(struct activity_thread *slot, struct activity_half *half, u64 now)
{
	u32 seq = *(volatile u32 *)&slot->seq;

	half->since_ns = now;
	slot->half[seq & 1] = *half;
}

/* Gives a new thread a slot, with the token of its parent; where there is none, it carries none. */
static __always_inline void account_claim(struct account_process *process, u32 tid, struct activity_half *half, u64 now)
{
	struct activity_thread *slot;

	for (u32 i = 0; i < ACTIVITY_THREAD_WINDOW; i++) {
		slot = account_element(process->shared, account_slot(process->is, tid, i));
		if (!slot)
			return;
		if (slot->tid != tid && __sync_val_compare_and_swap(&slot->tid, 0, tid))
			continue;
		account_give(slot, half, now);
		return;
	}
}

/* A new task of a process whose tokens are inherited. */
static __always_inline void account_fork(struct task_struct *parent, struct task_struct *child)
{
	struct account_thread thread;
	struct activity_owner owner;
	struct activity_half half;

	if (!account_process_of(parent, &thread.process))
		return;
	if (!(thread.process.is->flags & ACTIVITY_INHERIT))
		return;
	/* In a pid namespace of its own, its ids are others. */
	if (parent->thread_pid->level != child->thread_pid->level)
		return;
	if (child->tgid != parent->tgid) {
		owner.process = thread.process.number;
		owner.serial = thread.process.serial;
		if (!bpf_task_storage_get(&activity_owners, child, &owner, BPF_LOCAL_STORAGE_GET_F_CREATE))
			return;
	}
	if (!account_thread_of(parent, &thread))
		return;
	account_carried(thread.shared, &half);
	if (half.token)
		account_claim(&thread.process, task_tid_inside(child), &half, bpf_ktime_get_ns());
}

/* The thread carries nothing from now on. */
static __always_inline void account_left(struct task_struct *current, struct account_thread *thread, u64 now)
{
	u32 seq = *(volatile u32 *)&thread->shared->seq;
	struct activity_half none = {.since_ns = now}, half[2] = {none, thread->shared->half[seq & 1]};

	if (half[1].token) {
		seq++;
	} else {
		half[0] = half[1];
		half[1] = thread->shared->half[(seq + 1) & 1];
	}
	carried_note(current, thread, &half[0], &half[1], seq, now);
}

/* The CPU time since the last switch, or that of tokens: its own clock is up to date at switches alone. */
static __always_inline void account_rest(struct activity_account *account, struct activity_half *half,
					 struct account_thread *thread, u64 now)
{
	struct activity_thread_state *state = thread->state;
	bool known = state->tid == thread->tid;
	u64 slice = known ? state->slice_ns : 0, out = known ? state->out_ns : 0;
	u64 start = half->since_ns > slice ? half->since_ns : slice;

	if (start > out && now > start)
		account_add(account, ACTIVITY_CPU_NS, now - start);
}

/* current ends, or becomes another program: what it carried is credited, and its slot is free. */
static __always_inline void account_leave(struct task_struct *current)
{
	struct activity_thread_state *state;
	struct activity_account *account;
	struct account_thread thread;
	struct activity_token *token;
	struct activity_half half;
	u64 now;

	if (!account_thread_of(current, &thread))
		return;
	if (thread.process.is->flags & ACTIVITY_DECLARED)
		declared_end(&thread, true);
	state = thread.state;
	now = bpf_ktime_get_ns();
	account_carried(thread.shared, &half);
	account = account_of_token(&thread.process, half.token, half.generation);
	token = account ? account_token(&thread.process, half.token) : NULL;
	if (token) {
		account_rest(account, &half, &thread, now);
		if (half.since_ns && now > half.since_ns)
			__sync_fetch_and_add(&token->wall_ns, now - half.since_ns);
	}
	account_left(current, &thread, now);
	thread.shared->half[0].token = thread.shared->half[1].token = 0;
	state->tid = 0;
	state->out_ns = 0;
	barrier();
	*(volatile u32 *)&thread.shared->tid = 0;
}

#endif
