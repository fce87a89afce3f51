/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Requests while askers are shed (docs/budget.md): no program runs where they begin. When the
 * device got a request the kernel notes itself, so that its completion needs no slot. Who
 * asked for it nobody knows then, and what never completes is not seen.
 */
#ifndef TAILCAM_TRACKER_BLOCK_SHED_H
#define TAILCAM_TRACKER_BLOCK_SHED_H

#include "trackers/block.h"

/* Written by the daemon, before it detaches the programs at the begin of requests, and before it attaches them again. */
volatile u32 askers_shed;

/*
 * When the device got rq; 0: not known. The kernel notes that for writeback throttling, and for
 * BFQ and Kyber (QUEUE_FLAG_STATS in block/blk-stat.c); else it is when rq was made, before it
 * was in a queue.
 */
static __always_inline u64 request_begun(struct request *rq)
{
	return rq->io_start_time_ns ?: rq->start_time_ns;
}

/* rq has taken long. */
static __always_inline void shed_outlier(struct request *rq, int error, u32 cpu, u64 start, u64 now)
{
	struct scratch *s = outlier_init(TRACK_BLOCK, cpu, start, now);

	if (!s)
		return;
	s->out.entry_cpu = cpu;
	s->out.sector = s->facts.sector = rq->__sector;
	s->out.bytes = rq->__data_len;
	request_emit(s, rq, error, rq->start_time_ns, start, now);
}

static __always_inline void shed_complete(struct request *rq, int error, u32 bytes, u32 cpu, struct cpu_state *me)
{
	u64 start = request_begun(rq), now;
	u32 op;

	if (bytes < rq->__data_len || !start) /* a part of it: see request_done */
		return;
	now = bpf_ktime_get_ns();
	if (me)
		me->seen[TRACK_BLOCK]++;
	histogram_delay(TRACK_BLOCK, cpu, now - start, ALONE);
	op = op_class(rq->cmd_flags);
	barrier_var(op);
	if ((s64)(now - start) >= (s64)floor_block[op & 7])
		shed_outlier(rq, error, cpu, start, now);
}

#endif
