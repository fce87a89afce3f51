/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What accounts read of the kernel's types beside lib/kernel.h, and how these differ between kernels. */
#ifndef TAILCAM_ACCOUNTS_KERNEL_H
#define TAILCAM_ACCOUNTS_KERNEL_H

#include "lib/core_fixes.h"

const volatile u32 page_shift; /* of this machine */

struct bvec_iter {
	unsigned int bi_size;
} CORE;

struct bio {
	struct bio *bi_next;
	struct bvec_iter bi_iter;
} CORE;

struct request___bio {
	struct bio *bio;
	unsigned int __data_len;
} CORE;

struct writeback_control {
	long nr_to_write;
} CORE;

struct sock___tcp {
	u16 sk_protocol;
	u16 sk_type;
} CORE;

struct io_wq_work {
	int cancel_seq; /* not read */
} CORE;

struct io_kiocb {
	struct io_wq_work work;
} CORE;

struct io_worker {
	struct io_wq_work *cur_work;
} CORE;

struct task_struct___more {
	void *worker_private;
	unsigned long min_flt, maj_flt; /* counted at their end */
} CORE;

static __always_inline u64 faults_of(struct task_struct *current)
{
	struct task_struct___more *p = (void *)current;

	return p->min_flt + p->maj_flt;
}

#endif
