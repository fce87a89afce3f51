//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * System calls by their functions (__x64_sys_NAME, __arm64_sys_NAME; of 32-bit
 * programs __ia32_sys_NAME, __arm64_compat_sys_NAME and others), with the maps of the main object (tailcam.bpf.c). Loaded once; what is attached to each
 * function only jumps here (tracker/call).
 */
#define RULE_WRITER SHARED /* these programs may be preempted, and interrupt each other: see lib/histogram.h */
#define CALLS_BY_FUNCTION
#include "lib/stack.h"
#include "trackers/syscall.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

NOWHERE(entry_nowhere);
NOWHERE(exit_nowhere);

/* Argument 0 of each function: the registers of user space, which hold the number of the call. */
SEC("fentry/any")
int call_entry(u64 *ctx)
{
	void *regs = (void *)ctx[0];
	struct task_struct *current = bpf_get_current_task_btf();
	u32 nr = trusted_syscall(regs);
	u32 cpu = bpf_get_smp_processor_id();

	KEEP_KERNEL_STACK(ctx, entry_nowhere);
	if (syscall_wanted(current, regs, &nr))
		syscall_entry(current, nr, bpf_ktime_get_ns(), cpu, this_cpu(cpu));
	return 0;
}

/* Which call it is, the entry knows: execve into another architecture has changed the registers. */
SEC("fexit/any")
int call_exit(u64 *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();

	KEEP_KERNEL_STACK(ctx, exit_nowhere);
	syscall_exit(ctx, bpf_get_current_task_btf(), -1, ctx[1], bpf_ktime_get_ns(), cpu, this_cpu(cpu));
	return 0;
}
