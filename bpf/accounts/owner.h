/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whose account something goes to that outlives the moment at which its token was
 * carried: a block request, a work item, a socket, a dirty file. And whose the work of
 * a thread is that works for others: a worker of a work queue, of io_uring, of writeback.
 */
#ifndef TAILCAM_ACCOUNTS_OWNER_H
#define TAILCAM_ACCOUNTS_OWNER_H

#include "accounts/account.h"
#include "accounts/kernel.h"

const volatile bool account_syscalls; /* the group is on: what else is of a call is known */

/* What found no room. Written by all CPUs, read by the daemon. */
volatile u64 lost_bios, lost_works, lost_files;

/*
 * What hooks keep of a thread between two of them. Not in what its process maps: it
 * has addresses of the kernel.
 */
struct progress {
	/* A worker of a work queue. */
	struct activity_reference work;	     /* whose item it runs */
	u64 work_item;			     /* 0: none of an activity */
	u64 work_since_ns;		     /* it runs since, or is off its CPU since */
	u64 work_ns, work_off_ns;	     /* so far */
	u64 writes_back;		     /* a file; 0: none */
	struct activity_reference writeback; /* whose: those that dirtied it */
	/* What began and goes on; 0: nothing. */
	u64 fault_ns, fault_away_ns, call_ns, call_away_ns;
	u64 network_ns, network_away_ns; /* since when the call works for a socket */
	/* A lock of the kernel that it waits for: see lock.h. */
	u64 lock, lock_ns;
	u64 lock_ip, lock_calls;
	u32 lock_kind, _pad;
	/* The page cache, of one file: see pagecache.h. */
	u64 mapping;
	u64 read_index, read_end, read_call; /* pages that were counted as hits, and in which call */
	u64 new_first, new_end;		     /* pages that were added, and not read since */
	u64 added_index;		     /* the last folio that was added, plus one */
	u64 fault_number;		     /* a fault that was counted: faults before it, plus one */
	u64 fault_index;		     /* what it looks for, plus one; 0: nothing */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct progress);
} progress SEC(".maps");

static __always_inline struct progress *progress_of(struct task_struct *p)
{
	return bpf_task_storage_get(&progress, p, NULL, 0);
}

static __always_inline struct progress *progress_make(struct task_struct *p)
{
	return bpf_task_storage_get(&progress, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Of what current works for, no token is known: but its process. */
static __always_inline void process_owner(struct task_struct *current, struct activity_reference *o)
{
	struct account_process process;

	if (!account_process_of(current, &process))
		return;
	o->process = process.number;
	o->serial = process.serial;
}

/* The account of an owner: of its token or, if that is not known, what its process shares. NULL: it is gone. */
static __always_inline struct activity_account *owner_account(struct activity_reference *o)
{
	struct account_process process;

	if (o->token)
		return account_referred(o);
	if (!account_process_find(o->process, o->serial, &process))
		return NULL;
	return account_element(process.accounts, 0);
}

static __always_inline bool same_owner(const struct activity_reference *a, const struct activity_reference *b)
{
	return a->serial == b->serial && a->token == b->token && a->generation == b->generation;
}

/* What workers of io_uring have been given by whom, by the address of the work. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct activity_reference);
} io_works SEC(".maps");

static __always_inline void io_queued(struct io_kiocb *req)
{
	u64 key = pointer_number(req) + bpf_core_field_offset(struct io_kiocb, work);
	struct activity_reference o = {};

	if (account_refer(bpf_get_current_task_btf(), &o))
		bpf_map_update_elem(&io_works, &key, &o, BPF_ANY);
	else if (bpf_map_lookup_elem(&io_works, &key))
		bpf_map_delete_elem(&io_works, &key);
}

/* A thread of the process that io_uring has made. Of what it was not seen to be given, the process is known alone. */
static __always_inline bool io_worker_owner(struct task_struct *current, struct activity_reference *o)
{
	struct io_worker *worker = (void *)((struct task_struct___more *)current)->worker_private;
	u64 key = worker ? (u64)BPF_CORE_READ(worker, cur_work) : 0;
	struct activity_reference *known = NULL;

	if (key)
		known = bpf_map_lookup_elem(&io_works, &key);
	if (known)
		*o = *known;
	else
		process_owner(current, o);
	return o->serial;
}

/* Whose the work of current is, which no interrupt has interrupted. */
static __always_inline bool owner_of(struct task_struct *current, struct activity_reference *o)
{
	struct progress *p;

	if (!(current->flags & (PF_KTHREAD | PF_IO_WORKER)))
		return account_refer(current, o);
	if (current->flags & PF_IO_WORKER)
		return io_worker_owner(current, o);
	if (!(current->flags & PF_WQ_WORKER))
		return false;
	p = progress_of(current);
	if (!p || !p->work_item)
		return false;
	*o = p->work;
	return true;
}

/* The account that current works for now; NULL: none. */
static __always_inline struct activity_account *owner_account_now(struct task_struct *current)
{
	struct activity_reference o = {};

	if (!(current->flags & (PF_KTHREAD | PF_IO_WORKER)))
		return account_of(current);
	return owner_of(current, &o) ? owner_account(&o) : NULL;
}

/* What percpu_* of lib/core_fixes.h are offsets from, of each CPU; 0: not known yet. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} cpu_bases SEC(".maps");

/* An interrupt or a softirq runs on top of current, or nobody can tell. */
static __always_inline bool interrupted(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 first = 0;
	u64 *base = bpf_map_lookup_elem(&cpu_bases, &first);

	return !base || running_in(current, percpu_base(current, base, bpf_get_smp_processor_id()));
}

#endif
