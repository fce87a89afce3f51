/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is read of a task, on every kernel and architecture that is supported. */
#ifndef TAILCAM_TASK_H
#define TAILCAM_TASK_H

#include "lib/core_fixes.h"

/* Both words of the name, without a helper call. */
#define COPY_COMM(to, task)                                  \
	do {                                                 \
		((u64 *)(to))[0] = ((u64 *)(task)->comm)[0]; \
		((u64 *)(to))[1] = ((u64 *)(task)->comm)[1]; \
	} while (0)

/* Number of the state bit (enum state_bit) of a kernel task state. */
static __always_inline u32 state_class(u32 state)
{
	if (state & TASK_INTERRUPTIBLE)
		return 0;
	if ((state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD))
		return 1;
	return 2;
}

/*
 * A system call as rules have it: by its number in the table for 64-bit programs
 * or, after those, for 32-bit programs. Negative: none.
 */
static __always_inline s32 syscall_of(s32 nr, bool compat)
{
	if (nr < 0 || nr >= SYSCALLS) /* such as those of x32 */
		return nr;
	if (nr >= SYSCALLS_32)
		return -1;
	return compat ? nr + SYSCALLS_32 : nr;
}

static __always_inline s32 task_syscall(struct task_struct *p)
{
	void *regs = (void *)bpf_task_pt_regs(p);

	return regs ? syscall_of(regs_syscall(regs), task_compat(p, regs)) : -1;
}

/* The same of a task and of registers that the verifier does not know for such. */
static __always_inline s32 read_syscall(struct task_struct *p, void *regs)
{
	return syscall_of(regs_syscall(regs), read_compat(p, regs));
}

#endif
