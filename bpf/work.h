/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Work queues and the kernel's coarse timers, for the recorder's groups workqueue and timer. */
#ifndef TAILCAM_WORK_H
#define TAILCAM_WORK_H

#include "recorder.h"

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(workqueue_queue_work, int req_cpu, struct pool_workqueue *pwq, struct work_struct *work)
{
	struct workqueue_struct *wq = pwq->wq;
	struct record r;

	record_begin(&r, REC_WORK_QUEUE);
	r.queue.work = (u64)work;
	r.queue.function = (u64)work->func;
	r.queue.req_cpu = req_cpu;
#pragma unroll
	for (int i = 0; i < 3; i++)
		((u64 *)r.queue.name)[i] = ((u64 *)wq->name)[i];
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work)
{
	struct record r;

	record_begin(&r, REC_WORK_START);
	r.work.work = (u64)work;
	r.work.function = (u64)work->func;
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(workqueue_execute_end, struct work_struct *work)
{
	struct record r;

	/* The work may be freed by now: its address is all there is. */
	record_begin(&r, REC_WORK_END);
	r.work.work = (u64)work;
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(timer_expire_entry, struct timer_list *timer, unsigned long now)
{
	struct record r;

	record_begin(&r, REC_TIMER_ENTRY);
	r.timer.timer = (u64)timer;
	r.timer.function = (u64)timer->function;
	r.timer.now = now;
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(timer_expire_exit, struct timer_list *timer)
{
	struct record r;

	/* Its function may have freed it. */
	record_begin(&r, REC_TIMER_EXIT);
	r.timer.timer = (u64)timer;
	record(ctx, &r);
	return 0;
}

#endif
