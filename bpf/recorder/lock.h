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

static __always_inline int record_contention_begin(void *ctx, void *lock, u32 flags)
{
	struct record r;
	u64 owner;

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

	record_init(&r, REC_LOCK_END);
	r.lock.lock = (u64)lock;
	r.lock.ret = ret;
	return record(ctx, &r);
}

#endif
