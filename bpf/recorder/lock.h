/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Waiting for locks of the kernel. */
#ifndef TAILCAM_RECORDER_LOCK_H
#define TAILCAM_RECORDER_LOCK_H

#include "recorder/ring.h"

/* include/trace/events/lock.h */
#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32

#define MUTEX_FLAGS 7UL	       /* kernel/locking/mutex.h: beside the owner */
#define RWSEM_READER_OWNED 1UL /* kernel/locking/rwsem.c: the owner is but the last reader that came */
#define RWSEM_OWNER_FLAGS 3UL
#define RT_MUTEX_HAS_WAITERS 1UL /* kernel/locking/rtmutex_common.h */

/*
 * Who holds a lock that somebody begins to wait for, as struct task_struct *;
 * 0: nobody knows. Spinlocks, per-CPU ones and semaphores note no owner. Those
 * of a real-time kernel are rt_mutexes, but for what many may read at once.
 */
static __always_inline u64 lock_owner(void *lock, u32 flags)
{
	u64 owner = 0;

	if (flags & LCB_F_RT) {
		if (!(flags & (LCB_F_READ | LCB_F_WRITE)))
			owner = (u64)BPF_CORE_READ((struct rt_mutex_base *)lock, owner);
		else if (bpf_core_type_exists(struct rwbase_rt))
			owner = (u64)BPF_CORE_READ((struct rwbase_rt *)lock, rtmutex.owner);
		return owner & ~RT_MUTEX_HAS_WAITERS;
	}
	if (flags & LCB_F_MUTEX) { /* LCB_F_SPIN as well: it spins while the owner runs */
		if (bpf_core_field_exists(((struct mutex *)0)->owner))
			owner = BPF_CORE_READ((struct mutex *)lock, owner.counter);
		return owner & ~MUTEX_FLAGS;
	}
	if (flags & (LCB_F_SPIN | LCB_F_PERCPU) || !(flags & (LCB_F_READ | LCB_F_WRITE)))
		return 0;
	if (bpf_core_field_exists(((struct rw_semaphore *)0)->owner))
		owner = BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
	return owner & RWSEM_READER_OWNED ? 0 : owner & ~RWSEM_OWNER_FLAGS;
}

static __always_inline void record_contention_begin(void *ctx, void *lock, u32 flags)
{
	struct record r;
	u64 owner;

	record_init(&r, REC_LOCK_BEGIN);
	r.lock.lock = (u64)lock;
	r.lock.flags = flags;
	owner = lock_owner(lock, flags);
	if (owner) /* it may end meanwhile: then the read fails, or finds another */
		r.lock.owner_tid = BPF_CORE_READ((struct task_struct *)owner, pid);
	record(ctx, &r);
}

static __always_inline void record_contention_end(void *ctx, void *lock, int ret)
{
	struct record r;

	record_init(&r, REC_LOCK_END);
	r.lock.lock = (u64)lock;
	r.lock.ret = ret;
	record(ctx, &r);
}

#endif
