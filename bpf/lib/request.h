/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is read of a block request. */
#ifndef TAILCAM_REQUEST_H
#define TAILCAM_REQUEST_H

#include "lib/kernel.h"

/* include/linux/blk_types.h, enum req_op */
#define REQ_OP_MASK 0xff

/* Number of the op bit (enum op_bit). */
static __always_inline u32 op_class(u32 cmd_flags)
{
	switch (cmd_flags & REQ_OP_MASK) {
	case 0:
		return 0; /* read */
	case 1:
		return 1; /* write */
	case 2:
		return 2; /* flush */
	case 3:
	case 5:
	case 9:
		return 3; /* discard, secure erase, write zeroes */
	default:
		return 4;
	}
}

static __always_inline u32 request_dev(struct request *rq)
{
	struct gendisk *disk = rq->q->disk;

	return disk ? (u32)disk->major << 20 | disk->first_minor : 0;
}

#endif
