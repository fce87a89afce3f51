/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* System calls, for the thread that makes them; it cannot change its token meanwhile. */
#ifndef TAILCAM_ACCOUNTS_SYSCALL_H
#define TAILCAM_ACCOUNTS_SYSCALL_H

#include "accounts/owner.h"
#include "accounts/slice.h"

static __always_inline void call_begins(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct account_thread thread;
	struct progress *p;

	if (!account_thread_of(current, &thread))
		return;
	p = progress_make(current);
	if (!p)
		return;
	p->call_ns = p->network_ns = bpf_ktime_get_ns();
	p->call_away_ns = p->network_away_ns = account_away(&thread);
}

static __always_inline void call_ends(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct account_thread thread;
	struct activity_account *a;
	struct activity_half half;
	struct progress *p;
	u64 now, began;

	if (!account_may(current))
		return;
	p = progress_of(current);
	if (!p || !p->call_ns)
		return;
	began = p->call_ns;
	p->call_ns = 0;
	if (!account_thread_of(current, &thread))
		return;
	account_carried(thread.shared, &half);
	a = account_of_token(&thread.process, half.token, half.generation);
	if (!a)
		return;
	now = bpf_ktime_get_ns();
	account_add(a, ACTIVITY_SYSCALLS, 1);
	account_add(a, ACTIVITY_SYSCALL_NS, now - began);
	account_add(a, ACTIVITY_CPU_KERNEL_NS, account_ran(&thread, began, p->call_away_ns, now));
}

#endif
