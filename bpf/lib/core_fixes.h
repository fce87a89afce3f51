/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* CO-RE and verifier work-arounds. */
#ifndef TAILCAM_CORE_FIXES_H
#define TAILCAM_CORE_FIXES_H

#include "lib/kernel.h"

/* The registers of user space, per architecture; only one flavour exists. */
struct pt_regs___x86 {
	unsigned long r10;
	unsigned long r8;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
	unsigned long bp;
} CORE;

struct pt_regs___arm64 {
	u64 regs[31];
	u64 sp;
	u64 pc;
	s32 syscallno;
} CORE;

/* Only its size counts. */
struct pt_regs___any {
	int unused;
} CORE;

struct pt_regs___args {
	unsigned long di, si, dx;
} CORE;

/* The system call that regs belong to; -1: none. */
static __always_inline s32 regs_syscall(void *regs)
{
	if (bpf_core_type_exists(struct pt_regs___x86) && bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return (s32)BPF_CORE_READ((struct pt_regs___x86 *)regs, orig_ax);
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, syscallno);
}

/* The same without a helper, of a pointer that the verifier knows for struct pt_regs. */
static __always_inline s32 trusted_syscall(void *regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return (s32)((struct pt_regs___x86 *)regs)->orig_ax;
	return ((struct pt_regs___arm64 *)regs)->syscallno;
}

/* The first five arguments of the system call that regs, trusted as well, enter. */
static __always_inline void trusted_args(void *regs, u64 *args)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		struct pt_regs___x86 *r = regs;

		args[0] = r->di;
		args[1] = r->si;
		args[2] = r->dx;
		args[3] = r->r10;
		args[4] = r->r8;
	} else {
		struct pt_regs___arm64 *r = regs;

		args[0] = r->regs[0];
		args[1] = r->regs[1];
		args[2] = r->regs[2];
		args[3] = r->regs[3];
		args[4] = r->regs[4];
	}
}

/* Instruction and stack pointer of user space. */
static __always_inline void regs_user(void *regs, u64 *ip, u64 *sp)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		*ip = BPF_CORE_READ((struct pt_regs___x86 *)regs, ip);
		*sp = BPF_CORE_READ((struct pt_regs___x86 *)regs, sp);
	} else {
		*ip = BPF_CORE_READ((struct pt_regs___arm64 *)regs, pc);
		*sp = BPF_CORE_READ((struct pt_regs___arm64 *)regs, sp);
	}
}

/* Its frame pointer. */
static __always_inline u64 regs_frame(void *regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return BPF_CORE_READ((struct pt_regs___x86 *)regs, bp);
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, regs[29]);
}

/* A task as a number, which the verifier does not let us make by a cast. */
static __always_inline u64 task_number(struct task_struct *p)
{
	u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &p);
	return number;
}

/* A 32-bit task: its system calls have other numbers, which are not tracked. */
static __always_inline bool task_compat(struct task_struct *p)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		return p->thread_info.status & 2;  /* TS_COMPAT */
	return p->thread_info.flags & (1UL << 22); /* arm64: TIF_32BIT */
}

/*
 * Makes at a number that the verifier knows nothing of. Otherwise it follows
 * the rest of the program once for each of the sixteen slots.
 */
static __always_inline int opaque_index(int index, u64 noise)
{
	asm volatile("%0 ^= %1; %0 ^= %1" : "+r"(index) : "r"(noise));
	return index;
}

#endif
