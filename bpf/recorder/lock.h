/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Waiting for locks of the kernel. */
#ifndef TAILCAM_RECORDER_LOCK_H
#define TAILCAM_RECORDER_LOCK_H

#include "lib/contention.h"
#include "lib/core_fixes.h"
#include "recorder/ring.h"

/*
 * Who holds a lock that somebody begins to wait for, as struct task_struct *;
 * 0: nobody knows. Spinlocks, per-CPU ones and semaphores note no owner.
 */
static __always_inline u64 lock_owner(void *lock, u32 flags)
{
	if (flags & LCB_F_RT)
		return rt_owner(lock, flags & (LCB_F_READ | LCB_F_WRITE));
	if (flags & LCB_F_MUTEX) /* LCB_F_SPIN as well: it spins while the owner runs */
		return mutex_owner(lock);
	if (flags & (LCB_F_SPIN | LCB_F_PERCPU) || !(flags & (LCB_F_READ | LCB_F_WRITE)))
		return 0;
	return rwsem_owner(lock);
}

/*
 * A CPU that spins does nothing else: it has one record, at its end, if it spun for so long. Servers
 * that wake each other do so thousands of times a second, most for less, and nobody is to blame for
 * that: it stays the running time of the task.
 */
#define SPIN_LEAST_NS 2000

/* A mutex says so as well while it spins for its owner, and may sleep yet. */
static __always_inline bool lock_spins(u32 flags)
{
	return flags & LCB_F_SPIN && !(flags & LCB_F_MUTEX);
}

/* Nobody else runs here until it ends: what another task, or this lock, has left was not seen to end. */
static __always_inline void spin_begins(struct cpu_state *me, u64 lock, u32 flags)
{
	u32 tid = bpf_get_current_task_btf()->pid;
	struct spin *spin = &me->spins[0];

	if (spin->start_ns && spin->lock != lock && spin->tid == tid)
		spin = &me->spins[1]; /* in an interrupt */
	spin->start_ns = 0;
	barrier();
	spin->lock = lock;
	spin->tid = tid;
	spin->flags = flags;
	barrier();
	*(volatile u64 *)&spin->start_ns = bpf_ktime_get_ns();
}

static __always_inline bool spin_is(struct spin *spin, u64 lock, u32 tid)
{
	return spin->start_ns && spin->lock == lock && spin->tid == tid;
}

/* Whether the wait that ends was a spin, whose begin was noted. */
static __always_inline bool spin_ends(void *ctx, u64 lock)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 tid = current->pid, cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	struct spin *spin;
	struct record r;
	u64 start, now;

	if (!me)
		return false;
	spin = &me->spins[0];
	if (!spin_is(spin, lock, tid))
		spin = &me->spins[1];
	if (!spin_is(spin, lock, tid))
		return false;
	start = spin->start_ns;
	*(volatile u64 *)&spin->start_ns = 0;
	now = bpf_ktime_get_ns();
	if ((s64)(now - start) < SPIN_LEAST_NS)
		return true;
	__builtin_memset(&r, 0, sizeof(r));
	record_head(&r, REC_LOCK_SPIN, cpu, tid, now);
	r.lock.lock = lock;
	r.lock.flags = spin->flags;
	r.lock.start_ns = start;
	record(ctx, &r);
	return true;
}

static __always_inline int record_contention_begin(void *ctx, void *lock, u32 flags)
{
	struct cpu_state *me = this_cpu(bpf_get_smp_processor_id());
	struct record r;
	u64 owner;

	if (!me)
		return 0;
	me->contended++;
	if (lock_spins(flags)) {
		spin_begins(me, (u64)lock, flags);
		return 0;
	}
	record_init(&r, REC_LOCK_BEGIN);
	r.lock.lock = (u64)lock;
	r.lock.flags = flags;
	owner = lock_owner(lock, flags);
	if (owner) /* it may end meanwhile: then the read fails, or finds another */
		r.lock.owner_tid = BPF_CORE_READ((struct task_struct *)owner, pid);
	return record(ctx, &r);
}

static __always_inline int record_contention_end(void *ctx, void *lock, int ret)
{
	struct record r;

	if (spin_ends(ctx, (u64)lock))
		return 0;
	record_init(&r, REC_LOCK_END);
	r.lock.lock = (u64)lock;
	r.lock.ret = ret;
	return record(ctx, &r);
}

#endif
