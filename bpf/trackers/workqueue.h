/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The workqueue tracker: a work item waits for a worker (phase wait), then its
 * function runs (phase run). The key is the item's address. It is queued once at
 * a time (WORK_STRUCT_PENDING_BIT), but may be queued again while it runs, so its
 * run has a slot of its own, whose key is the address plus one: items are aligned.
 *
 * Nobody tells when queued work is cancelled. So an item that is queued where one
 * waits already was cancelled in between, and before a timeout fires the item is
 * asked whether it still waits.
 */
#ifndef TAILCAM_TRACKER_WORKQUEUE_H
#define TAILCAM_TRACKER_WORKQUEUE_H

#include "abi/workqueue.h"
#include "lib/growth.h"
#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/timeout_scan.h"

const volatile bool track_workqueue;
const volatile u32 work_mask; /* buckets of the table, less one; a power of two less one */

_Static_assert(__builtin_offsetof(struct work_extra, queue) == EXTRA_NAME, "histogram_ask finds the name");
_Static_assert(__builtin_offsetof(struct irq_extra, name) == EXTRA_NAME, "histogram_ask finds the name");

/* Floors and timeouts, by phase; written by the daemon. */
volatile u64 floor_workqueue[PHASES];
volatile u64 timeout_workqueue[PHASES];

/* Work items by address and phase, their slots and further segments; written here. Sized and grown by the daemon. */
ARRAY_MAP(work_keys, struct bucket);
ARRAY_MAP(work_slots, struct work_slot);
SEGMENT_MAP(more_work_slots, SEGMENTS, struct work_slot);

static __always_inline struct work_slot *work_slot_at(int index)
{
	return SLOT_AT(&work_slots, &more_work_slots, index);
}

/* The key of an item in a phase. */
static __always_inline u64 work_key(struct work_struct *work, u32 phase)
{
	return pointer_number(work) + phase;
}

static __always_inline void work_release(int index, struct work_slot *slot)
{
	slot->start_ns = 0;
	slot->queued = 0;
	table_release(TABLE_WORKS, &work_keys, index);
}

/* An empty slot for the item in a phase; what stands there is of an exit that nobody saw. */
static __always_inline struct work_slot *work_claim(u64 key, struct cpu_state *me, bool *fresh)
{
	int index = table_claim(TABLE_WORKS, &work_keys, work_mask, key, HASHED, fresh);

	if (index >= 0)
		return work_slot_at(index);
	if (me)
		__sync_fetch_and_add(&me->table_full[TRACK_WORKQUEUE], 1);
	return NULL;
}

/* -------------------------------------------------------------------- entry */

static __always_inline void work_queued(struct pool_workqueue *pwq, struct work_struct *work,
					struct task_struct *current, u32 context)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	struct work_slot *slot;
	bool fresh;

	slot = work_claim(work_key(work, PHASE_WAIT), me, &fresh);
	if (!slot)
		return;
	slot->wait_ns = 0;
	slot->worker = 0;
	slot->function = (u64)work->func;
	slot->queued = 1;
	slot->tid = current->pid;
	slot->pid = current->tgid;
	slot->context = context;
	slot->queued_cpu = slot->cpu = cpu;
	COPY_COMM(slot->comm, current);
	bpf_probe_read_kernel_str(slot->queue, sizeof(slot->queue), pwq->wq->name);
	barrier();
	*(volatile u64 *)&slot->start_ns = now;
}

/* --------------------------------------------------------------------- exit */

/* Works of the queues "events_bh" run in softirqs, on top of whatever task is there. */
static __always_inline bool is_worker(struct task_struct *p)
{
	return p->flags & PF_WQ_WORKER;
}

/* What rules ask for and the outlier tells, but for the worker. */
static __always_inline void outlier_work(struct scratch *s, struct work_slot *slot, u64 key)
{
	struct work_extra *extra = (struct work_extra *)s->out.extra;
	u32 phase = key & 1;

	extra->work = key & ~1ULL;
	extra->function = s->facts.function = slot->function;
	extra->wait_ns = slot->wait_ns;
	extra->phase = phase;
	__builtin_memcpy(extra->queue, slot->queue, sizeof(extra->queue));
	s->facts.phase = 1 << phase;
	s->facts.name = name_hash(extra->queue);
	s->out.entry_cpu = slot->cpu;
	extra->queued = slot->queued;
	if (!slot->queued)
		return;
	s->out.waker_tid = slot->tid;
	s->out.waker_pid = slot->pid;
	s->out.waker_cpu = slot->queued_cpu;
	s->out.waker_context = slot->context;
	__builtin_memcpy(s->out.waker_comm, slot->comm, TASK_COMM_LEN);
}

/*
 * Number of the scratch. A softirq may interrupt another work item's exit, and the start of a work
 * item may preempt the end of another, or the other way round.
 */
static __always_inline u32 work_scratch(u64 key, bool worker)
{
	if (!worker)
		return SCRATCH_SOFTIRQ;
	return (key & 1) == PHASE_RUN ? TRACK_WORKQUEUE : SCRATCH_WORK_WAIT;
}

/* The floor is passed; current is the worker, if there is one. */
static __noinline int work_outlier(struct work_slot *slot, u64 key, u64 now)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	bool worker = is_worker(current);
	struct scratch *s;
	u64 start;

	if (!slot)
		return 0;
	start = slot->start_ns;
	s = outlier_init_in(work_scratch(key, worker), TRACK_WORKQUEUE, cpu, start, now);
	if (!s)
		return 0;
	s->timed_out = deadline_take(&slot->start_ns, &slot->deadline);
	if (worker)
		outlier_task(s, current);
	outlier_work(s, slot, key);
	if (evaluate(s, TRACK_WORKQUEUE, now - start))
		outlier_emit(s);
	return 0;
}

/* Counts its delay. */
static __always_inline void work_histogram(struct work_slot *slot, u64 key, u32 cpu, u64 now, u64 delay)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct scratch *s;
	u32 needs;

	histogram_delay(TRACK_WORKQUEUE, cpu, delay, SHARED);
	if (!is_worker(current))
		return; /* its scratch may be in use below */
	s = histogram_facts_at(work_scratch(key, true), TRACK_WORKQUEUE, cpu, &needs);
	if (!s)
		return;
	histogram_task(&s->facts, current, needs);
	s->facts.phase = 1 << (key & 1);
	s->facts.function = slot->function;
	if (needs & NEED_NAME) {
		struct work_extra *extra = (struct work_extra *)s->out.extra;

		__builtin_memcpy(extra->queue, slot->queue, sizeof(extra->queue));
		s->facts.name = name_hash(extra->queue);
	}
	histogram_evaluate(s, TRACK_WORKQUEUE, cpu, now, delay);
}

/* Ends what is in slot: counts its delay, and holds it against the floor. */
static __always_inline void work_exit(struct work_slot *slot, u64 key, u32 cpu, struct cpu_state *me, u64 now)
{
	u64 delay = now - slot->start_ns;

	if (me)
		__sync_fetch_and_add(&me->seen[TRACK_WORKQUEUE], 1);
	work_histogram(slot, key, cpu, now, delay);
	if ((s64)delay >= (s64)floor_workqueue[key & 1])
		work_outlier(slot, key, now);
}

static __always_inline struct work_slot *work_find(u64 key, int *index)
{
	*index = table_find(TABLE_WORKS, &work_keys, work_mask, key, HASHED);
	return *index < 0 ? NULL : work_slot_at(*index);
}

static __always_inline void work_started(struct work_struct *work)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	struct task_struct *current = bpf_get_current_task_btf();
	u64 key = work_key(work, PHASE_WAIT);
	struct work_slot *wait, *run;
	int index;
	bool fresh;

	wait = work_find(key, &index);
	if (wait && !wait->start_ns)
		wait = NULL;
	run = work_claim(key + PHASE_RUN, me, &fresh);
	if (run) {
		if (!fresh && run->start_ns && me)
			__sync_fetch_and_add(&me->replaced[TRACK_WORKQUEUE], 1);
		run->function = (u64)work->func;
		run->worker_tid = is_worker(current) ? current->pid : 0;
		run->worker = run->worker_tid ? pointer_number(current) : 0;
		run->cpu = cpu;
		run->wait_ns = 0;
		run->queued = 0;
		__builtin_memset(run->queue, 0, sizeof(run->queue));
		if (wait) {
			run->wait_ns = now - wait->start_ns;
			run->queued = wait->queued;
			run->tid = wait->tid;
			run->pid = wait->pid;
			run->context = wait->context;
			run->queued_cpu = wait->queued_cpu;
			__builtin_memcpy(run->comm, wait->comm, TASK_COMM_LEN);
			__builtin_memcpy(run->queue, wait->queue, sizeof(run->queue));
		}
		barrier();
		*(volatile u64 *)&run->start_ns = now;
	}
	if (!wait)
		return;
	work_exit(wait, key, cpu, me, now);
	work_release(index, wait);
}

/* The slot of an item's run that current ends; NULL: none is known. */
static __always_inline struct work_slot *work_run(u64 key, int *index)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct work_slot *slot = work_find(key, index);

	/* Another item at the same address, whose memory this one's function has freed, may run since. */
	if (!slot || slot->worker_tid != (is_worker(current) ? current->pid : 0))
		return NULL;
	return slot;
}

static __always_inline void work_ended(struct work_struct *work)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u64 key = work_key(work, PHASE_RUN);
	struct work_slot *slot;
	int index;

	slot = work_run(key, &index);
	if (!slot)
		return;
	if (slot->start_ns)
		work_exit(slot, key, cpu, me, now);
	work_release(index, slot);
}

/* The same, where the kernel has skipped the program that tells (see tailcam.bpf.c). */
static __always_inline void work_skipped(struct work_struct *work, struct cpu_state *me)
{
	struct work_slot *slot;
	int index;

	slot = work_run(work_key(work, PHASE_RUN), &index);
	if (!slot)
		return;
	if (me)
		__sync_fetch_and_add(&me->replaced[TRACK_WORKQUEUE], 1);
	work_release(index, slot);
}

/* -------------------------------------------------- timeouts, reclaiming */

static __always_inline void work_scan(struct tick_walk *w, u32 index)
{
	struct work_slot *slot = work_slot_at(index);
	u64 start, key;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	if (!start)
		return;
	key = table_key_at(TABLE_WORKS, &work_keys, index);
	timeout_check(w, TRACK_WORKQUEUE, index, start, start, timeout_workqueue[key & 1], &slot->deadline);
}

/* The item still waits where it was queued: it was neither cancelled nor is its memory something else now. */
static __always_inline bool work_waits(struct work_slot *slot, u64 key)
{
	struct work_struct *work = (struct work_struct *)key;
	u64 data = BPF_CORE_READ(work, data.counter);

	return (u64)BPF_CORE_READ(work, func) == slot->function && (data & 1);
}

static __always_inline void expire_work(struct tick_walk *w, u32 index)
{
	struct work_slot *slot = work_slot_at(index);
	struct scratch *s;
	u64 start, key;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	key = table_key_at(TABLE_WORKS, &work_keys, index);
	if (!key || !start)
		return;
	if (!(key & 1) && !work_waits(slot, key)) {
		slot->deadline.for_ns = start; /* cancelled: not looked at again until its slot is used again */
		slot->deadline.due_ns = NEVER;
		return;
	}
	s = expiry_start(w, TRACK_WORKQUEUE, start, start, &slot->deadline);
	if (!s)
		return;
	if (slot->worker)
		read_task(s, (struct task_struct *)slot->worker, slot->worker_tid);
	else
		s->out.cpu = s->facts.cpu = slot->cpu;
	outlier_work(s, slot, key);
	evaluate(s, TRACK_WORKQUEUE, w->now - start);
	if (!expiry_claim(s, &slot->start_ns, &slot->deadline, start, start))
		return;
	if (s->wants_kernel && slot->worker)
		read_stack(s, slot->worker_tid);
	outlier_emit(s);
}

/* A pass of its own, with a frame of its own: that of expire_step fills the stack that 6.1 allows. */
static long expire_work_step(u32 i, struct tick_walk *w)
{
	struct due_slot *p = bpf_map_lookup_elem(&due_slots, &i);

	if (!p)
		return 1;
	if (p->tracker == TRACK_WORKQUEUE)
		expire_work(w, p->index);
	return 0;
}

/* Forgets an item that waits since start no more: nobody told that it was cancelled. 1: it did. */
static __always_inline int work_reclaim(u32 index, u64 start)
{
	struct work_slot *slot = work_slot_at(index);
	u64 key = table_key_at(TABLE_WORKS, &work_keys, index);

	if (!slot || !start || !key || (key & 1) || slot->start_ns != start || work_waits(slot, key))
		return 0;
	if (__sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return 0;
	work_release(index, slot);
	return 1;
}

#endif
