/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What interrupts and softirqs take on top of threads that carry a token: the machine's, in
 * the header of their process. It is in the CPU time of the token, too, as in the kernel's
 * own: this says how much of that can be.
 */
#ifndef TAILCAM_ACCOUNTS_INTERRUPT_H
#define TAILCAM_ACCOUNTS_INTERRUPT_H

#include "accounts/owner.h"

struct interrupt_time {
	u64 since_ns; /* of the outermost */
	u32 depth;
	u32 _pad;
};

/* Of each CPU, written by it alone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct interrupt_time);
} interrupt_times SEC(".maps");

static __always_inline void interrupt_begins(void)
{
	u32 first = 0;
	struct interrupt_time *t = bpf_map_lookup_elem(&interrupt_times, &first);

	if (t && !t->depth++)
		t->since_ns = bpf_ktime_get_ns();
}

static __always_inline void interrupt_ends(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct account_process process;
	struct activity_header *header;
	struct interrupt_time *t;
	u32 first = 0;

	t = bpf_map_lookup_elem(&interrupt_times, &first);
	if (!t || !t->depth) /* its entry was before the program */
		return;
	if (--t->depth || (current->flags & PF_KTHREAD) || !account_process_of(current, &process))
		return;
	header = account_element(process.accounts, 0);
	if (header)
		__sync_fetch_and_add(&header->machine_ns, bpf_ktime_get_ns() - t->since_ns);
}

#endif
