/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which stack a program has. From Linux 6.13 on (x86-64; arm64 later) the kernel gives those of
 * most kinds one of their own on each CPU, since it lets no task into a program that another one is
 * in there (bpf_enable_priv_stack() of kernel/bpf/verifier.c, __bpf_prog_enter_recur() of
 * kernel/bpf/trampoline.c). Nobody is kept out of a program that others jump into, nor of one at a
 * uprobe (bpf_prog_run_array_uprobe() of include/linux/bpf.h): tasks that are preempted in such a
 * one would share its stack, and so crash the kernel. Programs that jump have the kernel's stack.
 */
#ifndef TAILCAM_STACK_H
#define TAILCAM_STACK_H

#include "lib/state.h"

const volatile bool jumps = false;

/* A table in which no program ever is: each that jumps needs its own (bpf_prog_map_compatible() of kernel/bpf/core.c). */
#define NOWHERE(map) MAP(map, PROG_ARRAY, 0, 1, u32, u32)

/* For programs that several tasks of a CPU can be in. The verifier removes the jump; some instructions are left of it. */
#define KEEP_KERNEL_STACK(ctx, nowhere)                      \
	({                                                   \
		if (jumps)                                   \
			bpf_tail_call((ctx), &(nowhere), 0); \
	})

#endif
