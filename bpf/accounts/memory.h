/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Page faults, for the thread that has them: two software events count them when they are
 * over, as minor or major, and on x86 a tracepoint tells when they began. And what the page
 * allocator hands out.
 */
#ifndef TAILCAM_ACCOUNTS_MEMORY_H
#define TAILCAM_ACCOUNTS_MEMORY_H

#include "accounts/owner.h"
#include "accounts/slice.h"

/* An exception of current, for an address of user space. */
static __always_inline void fault_begins(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct account_thread thread;
	struct progress *p;

	if (!account_may(current))
		return;
	p = progress_make(current);
	if (!p)
		return;
	p->fault_ns = bpf_ktime_get_ns();
	if (account_syscalls && account_thread_of(current, &thread))
		p->fault_away_ns = account_away(&thread);
}

/* What a fault took of the CPU, which is the call's if it was in one. */
static __always_inline void fault_ran(struct task_struct *current, struct activity_account *a, struct progress *p,
				      u64 now)
{
	struct account_thread thread;

	if (account_syscalls && !p->call_ns && account_thread_of(current, &thread))
		account_add(a, ACTIVITY_CPU_KERNEL_NS, account_ran(&thread, p->fault_ns, p->fault_away_ns, now));
}

/* value: ACTIVITY_FAULTS_MINOR or _MAJOR. */
static __always_inline void fault_ends(u32 value)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct activity_account *a;
	struct progress *p;
	u64 now;

	a = owner_account_now(current);
	if (!a)
		return;
	account_add(a, value, 1);
	p = progress_of(current);
	if (!p || !p->fault_ns)
		return;
	now = bpf_ktime_get_ns();
	account_add(a, ACTIVITY_FAULT_NS, now - p->fault_ns);
	fault_ran(current, a, p, now);
	p->fault_ns = 0;
}

static __always_inline void pages_allocated(u64 page, u32 order)
{
	struct activity_account *a;

	/* Those of interrupts, such as for packets, are nobody's. */
	if (!page || !activities_open)
		return;
	a = owner_account_now(bpf_get_current_task_btf());
	if (a && !interrupted())
		account_add(a, ACTIVITY_MEMORY_BYTES, 1ULL << ((page_shift + order) & 63));
}

#endif
