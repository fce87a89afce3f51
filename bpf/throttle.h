/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A cgroup's CPU quota, for the recorder's group throttle. There is no
 * tracepoint: these are functions of kernel/sched/fair.c, and need a kernel
 * that lets fexit be attached. What a switch tells (switch_state.h) needs none.
 */
#ifndef TAILCAM_THROTTLE_H
#define TAILCAM_THROTTLE_H

#include "recorder.h"

static __always_inline void record_throttle(void *ctx, u16 type, struct cfs_rq *queue)
{
	struct record r;

	record_begin(&r, type);
	r.throttle.cgroup = queue->tg->css.cgroup->kn->id;
	r.throttle.cpu = queue->rq->cpu;
	record(ctx, &r);
}

SEC("fexit/throttle_cfs_rq")
int BPF_PROG(throttle_cfs_rq, struct cfs_rq *queue, bool throttled)
{
	if (throttled) /* false: more quota had come meanwhile */
		record_throttle(ctx, REC_THROTTLE, queue);
	return 0;
}

SEC("fexit/unthrottle_cfs_rq")
int BPF_PROG(unthrottle_cfs_rq, struct cfs_rq *queue)
{
	if (!BPF_CORE_READ_BITFIELD(queue, throttled)) /* 6.18+ may leave it as it is */
		record_throttle(ctx, REC_UNTHROTTLE, queue);
	return 0;
}

#endif
