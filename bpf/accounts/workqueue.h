/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Work items of work queues, for whoever queued them. Nobody tells when one is cancelled:
 * what stands at its address is written anew, or deleted, when the next one is queued there.
 */
#ifndef TAILCAM_ACCOUNTS_WORKQUEUE_H
#define TAILCAM_ACCOUNTS_WORKQUEUE_H

#include "accounts/owner.h"

const volatile bool account_workqueues; /* the group is on: sched_switch sees to workers */

/* Items that were queued and do not run yet, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct activity_reference);
} works SEC(".maps");

static __always_inline void account_work_queued(struct work_struct *work)
{
	u64 key = pointer_number(work);
	struct activity_reference o = {};

	if (!activities_open)
		return;
	/* From an interrupt, such as that of a timer, nobody knows for whom. */
	if (owner_of(bpf_get_current_task_btf(), &o) && !interrupted()) {
		if (bpf_map_update_elem(&works, &key, &o, BPF_ANY))
			__sync_fetch_and_add(&lost_works, 1);
	} else if (bpf_map_lookup_elem(&works, &key)) {
		bpf_map_delete_elem(&works, &key);
	}
}

static __always_inline void account_work_starts(struct work_struct *work)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 key = pointer_number(work);
	struct progress *p;
	struct activity_reference *o, copy;

	o = activities_open ? bpf_map_lookup_elem(&works, &key) : NULL;
	if (!o)
		return;
	copy = *o;
	bpf_map_delete_elem(&works, &key);
	if (!(current->flags & PF_WQ_WORKER) || interrupted())
		return; /* of a queue "events_bh" (6.9): in a softirq, on top of anybody */
	p = progress_make(current);
	if (!p)
		return;
	p->work = copy;
	p->work_ns = p->work_off_ns = 0;
	p->work_since_ns = bpf_ktime_get_ns();
	p->work_item = key;
}

static __always_inline void account_work_ends(struct work_struct *work)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct activity_account *a;
	struct progress *p;

	if (!(current->flags & PF_WQ_WORKER))
		return;
	p = progress_of(current);
	if (!p || !p->work_item || p->work_item != pointer_number(work))
		return;
	p->work_item = 0;
	a = owner_account(&p->work);
	p->work.serial = 0;
	if (!a)
		return;
	account_add(a, ACTIVITY_WORK_ITEMS, 1);
	account_add(a, ACTIVITY_WORK_NS, p->work_ns + bpf_ktime_get_ns() - p->work_since_ns);
	account_add(a, ACTIVITY_WORK_BLOCKED_NS, p->work_off_ns);
}

/* Whether a switch is of a worker. */
static __always_inline bool account_works(struct task_struct *prev, struct task_struct *next)
{
	return account_workqueues && activities_open && ((prev->flags | next->flags) & PF_WQ_WORKER);
}

/* Called at each of these: prev leaves its CPU, next gets it. A worker that runs an item is on its CPU, or off it. */
static __always_inline void account_work_switch(struct task_struct *prev, struct task_struct *next, u64 now)
{
	struct progress *p;

	if (prev->flags & PF_WQ_WORKER) {
		p = progress_of(prev);
		if (p && p->work_item) {
			p->work_ns += now - p->work_since_ns;
			p->work_since_ns = now;
		}
	}
	if (next->flags & PF_WQ_WORKER) {
		p = progress_of(next);
		if (p && p->work_item) {
			p->work_off_ns += now - p->work_since_ns;
			p->work_since_ns = now;
		}
	}
}

#endif
