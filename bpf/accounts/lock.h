/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Locks of the kernel that a thread has to wait for: mutexes, reader-writer semaphores, spin
 * locks. Locks of user space are system calls (futex), and no business of these hooks.
 *
 * A thread waits for one lock that it sleeps in, at most, and on top of that for one that it
 * spins on, such as the one inside of the other. What is inside counts as the outer one.
 */
#ifndef TAILCAM_ACCOUNTS_LOCK_H
#define TAILCAM_ACCOUNTS_LOCK_H

#include "accounts/owner.h"
#include "lib/contention.h"
#include "lib/task.h"

const volatile bool account_locks; /* the group is on */

/* What the thread spins on that runs on this CPU: nothing else of that thread runs meanwhile. */
struct lock_spin {
	u64 lock; /* 0: nothing */
	u64 begin_ns;
	u32 tid, _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lock_spin);
} lock_spins SEC(".maps");

static __always_inline u64 lock_ip(struct task_struct *p)
{
	void *regs = (void *)bpf_task_pt_regs(p);

	return regs ? regs_ip(regs) : 0;
}

/*
 * Whether the thread still is in the kernel for what it waited in: if an end was not seen, it
 * would wait for ever. It has not been in user space where it is at the same place, with as many
 * reads and writes, and has not changed its token since.
 */
static __always_inline bool lock_holds(struct task_struct *p, struct progress *is, u64 carried_ns)
{
	if (!is->lock_ns)
		return false;
	if (carried_ns <= is->lock_ns && is->lock_ip == lock_ip(p) && is->lock_calls == task_calls(p))
		return true;
	is->lock_ns = 0;
	return false;
}

/* prev leaves its CPU, and sleeps: in a lock. */
static __always_inline bool lock_waits(struct task_struct *prev, u64 carried_ns)
{
	struct progress *is = progress_of(prev);

	return is && lock_holds(prev, is, carried_ns);
}

static __always_inline u32 lock_kind(u32 flags)
{
	if (flags & LCB_F_MUTEX)
		return ACTIVITY_KERNEL_LOCK_MUTEX_NS;
	if (flags & LCB_F_SPIN)
		return ACTIVITY_KERNEL_LOCK_SPIN_NS;
	return flags & (LCB_F_READ | LCB_F_WRITE) ? ACTIVITY_KERNEL_LOCK_RWSEM_NS : ACTIVITY_KERNEL_LOCK_RTMUTEX_NS;
}

static __always_inline void lock_spins_begin(struct task_struct *current, u64 lock)
{
	struct lock_spin *spin;
	u32 zero = 0;

	spin = bpf_map_lookup_elem(&lock_spins, &zero);
	if (!spin)
		return;
	spin->lock = lock;
	spin->tid = current->pid;
	spin->begin_ns = bpf_ktime_get_ns();
}

/* A mutex says so again each time it is about to sleep or to spin. */
static __always_inline void lock_sleeps_begin(struct task_struct *current, u64 lock, u32 kind, bool allocate)
{
	struct account_thread thread;
	struct activity_half half;
	struct progress *is;

	if (!account_thread_of(current, &thread))
		return;
	account_carried(thread.shared, &half);
	is = allocate ? progress_make(current) : progress_of(current);
	if (!half.token || !is || (is->lock == lock && lock_holds(current, is, half.since_ns)))
		return;
	is->lock = lock;
	is->lock_kind = kind;
	is->lock_ip = lock_ip(current);
	is->lock_calls = task_calls(current);
	is->lock_ns = bpf_ktime_get_ns();
}

static __always_inline void lock_begins(u64 lock, u32 flags)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 kind = lock_kind(flags);

	if (!account_may(current) || interrupted())
		return;
	if (kind == ACTIVITY_KERNEL_LOCK_SPIN_NS)
		lock_spins_begin(current, lock);
	else /* a spin lock of a real-time kernel may be the allocator's own */
		lock_sleeps_begin(current, lock, kind, !(flags & LCB_F_RT));
}

static __always_inline void lock_credit(struct task_struct *current, u32 kind, u64 since)
{
	struct activity_account *account = account_of(current);
	u64 now = bpf_ktime_get_ns();

	if (!account || now < since)
		return;
	account_add(account, ACTIVITY_KERNEL_LOCKS, 1);
	account_add(account, kind, now - since);
}

static __always_inline void lock_ends(u64 lock)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct lock_spin *spin;
	struct progress *is;
	u64 since;
	u32 zero = 0;

	if (!account_may(current) || interrupted())
		return;
	is = progress_of(current);
	spin = bpf_map_lookup_elem(&lock_spins, &zero);
	if (spin && spin->lock == lock && spin->tid == (u32)current->pid) {
		spin->lock = 0;
		if (!is || !is->lock_ns)
			lock_credit(current, ACTIVITY_KERNEL_LOCK_SPIN_NS, spin->begin_ns);
		return;
	}
	if (!is || !is->lock_ns || is->lock != lock)
		return;
	since = is->lock_ns;
	is->lock_ns = 0;
	lock_credit(current, is->lock_kind, since);
}

#endif
