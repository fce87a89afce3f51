/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The block tracker: issue to completion of a request, and the time in the
 * queue before. The key is the request itself, so flushes, discards and
 * requests of stacked devices need no special care.
 */
#ifndef TAILCAM_TRACKER_BLOCK_H
#define TAILCAM_TRACKER_BLOCK_H

#include "lib/growth.h"
#include "lib/histogram.h"
#include "lib/kept_context.h"
#include "lib/outlier.h"
#include "lib/request.h"
#include "lib/timeout_scan.h"

const volatile bool track_block;
const volatile u32 request_mask; /* buckets of the table, less one; a power of two less one */

/* Floors and timeouts, by number of the op bit; written by the daemon. */
volatile u64 floor_block[FLOOR_OPS];
volatile u64 timeout_block[FLOOR_OPS];

/* A block request between insert or issue and its completion. */
struct request_slot {
	u64 insert_ns; /* 0: never seen in a queue */
	u64 issue_ns;  /* 0: not yet */
	u64 cgroup_id;
	u32 tid, pid, uid, cpu;
	u32 requeues;
	u32 requeued; /* given back, waits to be issued again */
	u32 kthread;
	u32 bytes; /* as issued: a request shrinks when it completes in parts */
	char comm[TASK_COMM_LEN];
	u64 sector; /* as issued */
	struct deadline deadline;
	u32 cmd_flags;
	u32 _pad;
	u64 context_ns; /* when the context of who asked was kept; 0: it has none */
};

/* Requests by address, their slots and further segments; written here. Sized and grown by the daemon. */
ARRAY_MAP(request_keys, struct bucket);
ARRAY_MAP(request_slots, struct request_slot);
SEGMENT_MAP(more_request_slots, SEGMENTS, struct request_slot);

static __always_inline struct request_slot *request_slot_at(int index)
{
	return SLOT_AT(&request_slots, &more_request_slots, index);
}

static __always_inline void request_forget(int index, struct request_slot *slot)
{
	slot->insert_ns = 0;
	slot->issue_ns = 0;
	slot->requeues = 0;
	slot->requeued = 0;
	table_release(TABLE_REQUESTS, &request_keys, index);
}

/* The slot of rq; NULL: it is in none. */
static __always_inline struct request_slot *request_find(struct request *rq, int *index)
{
	*index = table_find(TABLE_REQUESTS, &request_keys, request_mask, pointer_number(rq), HASHED);
	return *index < 0 ? NULL : request_slot_at(*index);
}

/*
 * Keeps what current works for, which has asked for a request: not what an interrupt has
 * interrupted, and not a worker, who has the thread pointer of another.
 */
static __always_inline void request_keeps(struct request_slot *slot, u32 index, struct task_struct *current, u32 cpu,
					  struct cpu_state *me, u64 now)
{
	slot->context_ns = 0;
	if (!thread_contexts || current->flags & (PF_KTHREAD | PF_IO_WORKER) || !me ||
	    running_in(current, percpu_base(current, &me->percpu, cpu)))
		return;
	if (context_keep(index, CONTEXT_REQUEST, now))
		slot->context_ns = now;
}

/* The slot of rq; if it is new, current is taken for the one who asked. */
static __always_inline struct request_slot *request_claim(struct request *rq, u32 cpu, struct cpu_state *me, u64 now)
{
	struct request_slot *slot;
	struct task_struct *p;
	bool fresh;
	int index;

	index = table_claim(TABLE_REQUESTS, &request_keys, request_mask, pointer_number(rq), HASHED, &fresh);
	if (index < 0) {
		if (me)
			__sync_fetch_and_add(&me->table_full[TRACK_BLOCK], 1);
		return NULL;
	}
	slot = request_slot_at(index);
	if (!slot)
		return NULL;
	if (!fresh) {
		if (!slot->issue_ns || slot->requeued)
			return slot; /* in a queue until now, or back in it */
		/* Its completion was not seen: what stands here is of an earlier request. */
		if (me)
			__sync_fetch_and_add(&me->replaced[TRACK_BLOCK], 1);
		slot->insert_ns = 0;
		slot->issue_ns = 0;
		slot->requeues = 0;
	}
	p = bpf_get_current_task_btf();
	slot->tid = p->pid;
	slot->pid = p->tgid;
	slot->uid = p->cred->uid.val;
	slot->kthread = !!(p->flags & PF_KTHREAD);
	slot->cgroup_id = p->cgroups->dfl_cgrp->kn->id;
	COPY_COMM(slot->comm, p);
	request_keeps(slot, index, p, cpu, me, now);
	return slot;
}

/* -------------------------------------------------------------------- entry */

static __always_inline void block_insert(struct request *rq, u32 cpu, struct cpu_state *me, u64 now)
{
	struct request_slot *slot = request_claim(rq, cpu, me, now);

	if (slot && !slot->insert_ns && !slot->issue_ns)
		slot->insert_ns = now;
}

static __always_inline void block_issue(struct request *rq, u32 cpu, struct cpu_state *me, u64 now)
{
	struct request_slot *slot = request_claim(rq, cpu, me, now);

	if (!slot)
		return;
	if (slot->requeued) { /* once more: the delay still counts from the first issue */
		slot->requeued = 0;
		return;
	}
	slot->cpu = cpu;
	slot->sector = rq->__sector;
	slot->bytes = rq->__data_len;
	slot->cmd_flags = rq->cmd_flags;
	slot->issue_ns = now;
}

/* The driver gave rq back. */
static __always_inline void block_requeue(struct request *rq)
{
	struct request_slot *slot;
	int index;

	slot = request_find(rq, &index);
	if (!slot || !slot->issue_ns)
		return;
	slot->requeues++;
	slot->requeued = 1;
}

/* rq became part of another request. */
static __always_inline void block_merge(struct request *rq)
{
	struct request_slot *slot;
	int index;

	slot = request_find(rq, &index);
	if (slot)
		request_forget(index, slot);
}

/* --------------------------------------------------------------------- exit */

/* What the one who asked for it worked for then. */
static __always_inline void request_context(struct outlier *out, struct request_slot *slot, u32 index)
{
	struct context_key key = {.of = index, .kind = CONTEXT_REQUEST};
	struct kept_context *kept;

	if (!thread_contexts || !slot->context_ns)
		return;
	kept = bpf_map_lookup_elem(&kept_contexts, &key);
	if (kept && kept->time_ns == slot->context_ns)
		__builtin_memcpy(out->trace_id, kept->id, sizeof(kept->id));
}

/* Who asked for the request: the facts that rules ask for, and the same in the outlier. */
static __always_inline void outlier_request(struct scratch *s, struct request_slot *slot, u32 index)
{
	struct outlier *out = &s->out;

	out->tid = s->facts.tid = slot->tid;
	out->pid = s->facts.pid = slot->pid;
	out->uid = s->facts.uid = slot->uid;
	out->cgroup_id = s->facts.cgroup_id = slot->cgroup_id;
	__builtin_memcpy(out->comm, slot->comm, TASK_COMM_LEN);
	__builtin_memcpy(s->facts.comm, slot->comm, TASK_COMM_LEN);
	s->facts.thread = slot->kthread ? THREAD_KERNEL : THREAD_USER;
	if (slot->kthread)
		out->flags |= OUTLIER_KTHREAD;
	out->sector = s->facts.sector = slot->sector;
	out->bytes = slot->bytes;
	out->requeues = slot->requeues;
	out->entry_cpu = slot->cpu;
	request_context(out, slot, index);
}

/* What rq itself tells, if a rule wants it: it took since start, after it had been queued, or 0. */
static __always_inline void request_emit(struct scratch *s, struct request *rq, int error, u64 queued, u64 start,
					 u64 now)
{
	struct gendisk *disk = rq->q->disk;
	struct outlier *out = &s->out;

	out->cmd_flags = rq->cmd_flags;
	s->facts.op = 1 << op_class(out->cmd_flags);
	out->dev = s->facts.dev = request_dev(rq);
	if (!evaluate(s, TRACK_BLOCK, now - start))
		return;
	out->ret = error;
	if (queued && (s64)(start - queued) > 0)
		out->queue_ns = start - queued;
	if (disk)
		bpf_probe_read_kernel_str(out->disk, sizeof(out->disk), disk->disk_name);
	outlier_emit(s);
}

/* The floor is passed. current is whoever was interrupted: the slot knows who asked. */
static __always_inline void block_outlier(struct request *rq, struct request_slot *slot, u32 index, int error, u32 cpu,
					  u64 now)
{
	struct scratch *s = outlier_init(TRACK_BLOCK, cpu, slot->issue_ns, now);
	u64 queued = slot->insert_ns ? slot->insert_ns : rq->start_time_ns;
	u64 start = slot->issue_ns, timed_out;

	timed_out = deadline_take(&slot->issue_ns, &slot->deadline);
	if (!s || is_self(slot->pid))
		return;
	s->timed_out = timed_out;
	outlier_request(s, slot, index);
	request_emit(s, rq, error, queued, start, now);
}

/* Counts its delay. */
static __always_inline void block_histogram(struct request *rq, struct request_slot *slot, u32 op, u32 cpu, u64 now)
{
	u64 delay = now - slot->issue_ns;
	struct scratch *s;
	u32 needs;

	histogram_delay(TRACK_BLOCK, cpu, delay, ALONE);
	s = histogram_facts(TRACK_BLOCK, cpu, &needs);
	if (!s || is_self(slot->pid))
		return;
	s->facts.pid = slot->pid;
	s->facts.tid = slot->tid;
	s->facts.sector = slot->sector;
	s->facts.uid = slot->uid;
	s->facts.cgroup_id = slot->cgroup_id;
	__builtin_memcpy(s->facts.comm, slot->comm, TASK_COMM_LEN);
	s->facts.thread = slot->kthread ? THREAD_KERNEL : THREAD_USER;
	s->facts.op = 1 << (op & 7);
	if (needs & NEED_DEVICE)
		s->facts.dev = request_dev(rq);
	histogram_evaluate(s, TRACK_BLOCK, cpu, now, delay);
}

/* The slot of rq, of which so many bytes are complete; NULL: it is in none, or there is more of it to come. */
static __always_inline struct request_slot *request_done(struct request *rq, u32 bytes, int *index)
{
	/* A part of the request: blk_update_request() is called again for the rest. */
	if (bytes < rq->__data_len)
		return NULL;
	return request_find(rq, index);
}

static __always_inline void block_complete(struct request *rq, int error, u32 bytes, u32 cpu, struct cpu_state *me,
					   u64 now)
{
	struct request_slot *slot;
	u64 floor;
	u32 op;
	int index;

	slot = request_done(rq, bytes, &index);
	if (!slot)
		return;
	if (slot->issue_ns) {
		if (me)
			me->seen[TRACK_BLOCK]++;
		op = op_class(rq->cmd_flags);
		barrier_var(op);
		block_histogram(rq, slot, op, cpu, now);
		floor = floor_block[op & 7];
		if ((s64)(now - slot->issue_ns) >= (s64)floor)
			block_outlier(rq, slot, index, error, cpu, now);
	}
	request_forget(index, slot);
}

/* The request is complete, and the kernel has skipped the program that tells (see tailcam.bpf.c). */
static __always_inline void block_skipped(struct request *rq, u32 bytes, struct cpu_state *me)
{
	struct request_slot *slot;
	int index;

	slot = request_done(rq, bytes, &index);
	if (!slot)
		return;
	if (me)
		__sync_fetch_and_add(&me->replaced[TRACK_BLOCK], 1);
	request_forget(index, slot);
}

/* ----------------------------------------------------------------- timeouts */

static __always_inline void request_scan(struct tick_walk *w, u32 index)
{
	struct request_slot *slot = request_slot_at(index);
	u64 start;
	u32 op;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->issue_ns;
	op = op_class(slot->cmd_flags);
	barrier_var(op);
	if (start)
		timeout_check(w, TRACK_BLOCK, index, start, start, timeout_block[op & 7], &slot->deadline);
}

static __always_inline void expire_request(struct tick_walk *w, u32 index)
{
	struct request_slot *slot = request_slot_at(index);
	struct request *rq;
	struct gendisk *disk;
	struct scratch *s;
	u64 start, queued;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->issue_ns;
	s = expiry_start(w, TRACK_BLOCK, start, start, &slot->deadline);
	if (!s)
		return;
	rq = (struct request *)table_key_at(TABLE_REQUESTS, &request_keys, index);
	if (is_self(slot->pid)) {
		slot->deadline.due_ns = NEVER;
		return;
	}
	outlier_request(s, slot, index);
	s->out.cpu = s->facts.cpu = slot->cpu; /* nobody knows where it will complete */
	s->out.cmd_flags = slot->cmd_flags;
	s->facts.op = 1 << op_class(slot->cmd_flags);
	disk = BPF_CORE_READ(rq, q, disk);
	s->out.dev = s->facts.dev = disk ? (u32)BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor) : 0;
	evaluate(s, TRACK_BLOCK, w->now - start);
	if (!expiry_claim(s, &slot->issue_ns, &slot->deadline, start, start))
		return;
	queued = slot->insert_ns ? slot->insert_ns : BPF_CORE_READ(rq, start_time_ns);
	if (queued && (s64)(start - queued) > 0)
		s->out.queue_ns = start - queued;
	if (disk)
		bpf_probe_read_kernel_str(s->out.disk, sizeof(s->out.disk), disk->disk_name);
	if (s->wants_kernel) /* whoever asked for it often waits for it */
		read_stack(s, slot->tid);
	outlier_emit(s);
}

#endif
