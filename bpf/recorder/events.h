/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The records of every group but sched (sched.h). */
#ifndef TAILCAM_RECORDER_EVENTS_H
#define TAILCAM_RECORDER_EVENTS_H

#include "lib/core_fixes.h"
#include "lib/interrupts.h"
#include "lib/request.h"
#include "lib/task.h"
#include "recorder/ring.h"
#include "recorder/tcp.h"

/* ---------------------------------------------------------------- process */

static __always_inline int record_fork(void *ctx, struct task_struct *parent, struct task_struct *child)
{
	struct record r;

	record_init(&r, REC_FORK);
	COPY_COMM(r.process.comm, parent);
	COPY_COMM(r.process.child_comm, child);
	r.process.pid = parent->tgid;
	r.process.child_tid = child->pid;
	r.process.child_pid = child->tgid;
	r.process.prio = child->prio;
	return record(ctx, &r);
}

/* REC_EXEC and REC_EXIT. */
static __always_inline void record_process_event(void *ctx, u16 type, struct task_struct *p, u32 old_tid)
{
	struct record r;

	record_init(&r, type);
	COPY_COMM(r.process.comm, p);
	r.process.pid = p->tgid;
	if (type == REC_EXEC)
		r.process.child_tid = old_tid;
	r.process.prio = p->prio;
	record(ctx, &r);
}

/* ---------------------------------------------------------------- syscall */

static __always_inline void record_call(struct record *r, u16 type, struct task_struct *current, u32 cpu, u32 nr,
					u64 now)
{
	__builtin_memset(r, 0, sizeof(*r));
	record_head(r, type, cpu, current->pid, now);
	r->syscall.nr = nr;
	r->syscall.pid = current->tgid;
}

static __always_inline void record_syscall_entry(void *ctx, struct task_struct *current, void *regs, bool compat,
						 u32 cpu, u32 nr, u64 now)
{
	struct record r;

	record_call(&r, REC_SYSCALL_ENTRY, current, cpu, syscall_of(nr, compat), now);
	trusted_args(regs, compat, r.syscall.args);
	record(ctx, &r);
}

static __always_inline void record_syscall_exit(void *ctx, struct task_struct *current, s64 ret, u32 cpu, u32 nr,
						u64 now)
{
	struct record r;

	record_call(&r, REC_SYSCALL_EXIT, current, cpu, nr, now);
	r.syscall.ret = ret;
	record(ctx, &r);
}

/* ------------------------------------------------------------------ block */

static __always_inline void record_request(void *ctx, u16 type, struct request *rq, u32 bytes, int error, u32 cpu,
					   u64 now)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct record r;

	record_head(&r, type, cpu, current->pid, now);
	r.block.rq = (u64)rq;
	r.block.sector = rq->__sector;
	r.block.dev = request_dev(rq);
	r.block.bytes = bytes;
	r.block.cmd_flags = rq->cmd_flags;
	r.block.error = error;
	COPY_COMM(r.block.comm, current);
	record(ctx, &r);
}

/* ------------------------------------------------------------- irq, timer */

/* A record of the sum is written when it is at least so much, */
#define SUM_LEAST_NS 200000
/* within so much: one fiftieth of a CPU is not worth any. */
#define SUM_SPAN_NS 10000000

const volatile u64 record_irq_floor; /* what takes less has no record of its own, unless it worked */

/* Adds a run that has none to the sum of its kind. */
static __always_inline void interrupt_add(void *ctx, struct interrupt_sum *sum, u32 vec, struct task_struct *current,
					  u64 start, u32 cpu, u64 now)
{
	struct record r = {};

	if (start - sum->since_ns > SUM_SPAN_NS) {
		sum->since_ns = start;
		sum->total_ns = sum->count = 0;
	}
	sum->total_ns += now - start;
	sum->count++;
	if (sum->total_ns < SUM_LEAST_NS)
		return;
	record_head(&r, REC_INTERRUPTS, cpu, current->pid, now);
	r.interrupts.since_ns = sum->since_ns;
	r.interrupts.total_ns = sum->total_ns;
	r.interrupts.count = sum->count;
	r.interrupts.vec = vec;
	sum->since_ns = now;
	sum->total_ns = sum->count = 0;
	record(ctx, &r);
}

/* A run has a record if it was long, or somebody may ask what it did. */
static __always_inline bool interrupt_recorded(struct interrupt_slot *slot, u64 now)
{
	return slot->worked || (s64)(now - slot->start_ns) >= (s64)record_irq_floor;
}

/* The handler in slot ends. */
static __always_inline void record_irq_run(void *ctx, struct interrupt_slots *mine, struct interrupt_slot *slot,
					   struct task_struct *current, int irq, int ret, struct irqaction *action,
					   u32 cpu, u64 now)
{
	struct record r = {};

	if (!interrupt_recorded(slot, now)) {
		interrupt_add(ctx, &mine->irq_sum, INTERRUPTS_IRQ, current, slot->start_ns, cpu, now);
		return;
	}
	record_head(&r, REC_IRQ, cpu, current->pid, now);
	r.irq.start_ns = slot->start_ns;
	r.irq.irq = irq;
	r.irq.ret = ret;
	bpf_probe_read_kernel_str(r.irq.name, sizeof(r.irq.name), action->name);
	record(ctx, &r);
}

/* The softirq in slot ends. */
static __always_inline void record_softirq_run(void *ctx, struct interrupt_slots *mine, struct interrupt_slot *slot,
					       struct task_struct *current, u32 vec, u32 cpu, u64 now)
{
	struct record r = {};

	if (!interrupt_recorded(slot, now)) {
		interrupt_add(ctx, &mine->sums[vec], vec, current, slot->start_ns, cpu, now);
		return;
	}
	record_head(&r, REC_SOFTIRQ, cpu, current->pid, now);
	r.softirq.start_ns = slot->start_ns;
	r.softirq.vec = vec;
	r.softirq.irq = slot->irq;
	record(ctx, &r);
}

/*
 * Of the tick there is one record, at its end, if it was long or somebody may ask what it did:
 * there are hundreds a second of each busy CPU, and each finds the ring's memory cold.
 */
static __always_inline void record_hrtimer_entry(void *ctx, struct hrtimer *timer, s64 *expires,
						 struct task_struct *current, struct cpu_state *me, u32 cpu, u64 now)
{
	struct record r = {};

	if (me && is_tick(timer, percpu_base(current, &me->percpu, cpu))) {
		me->tick_ns = now;
		return;
	}
	record_head(&r, REC_HRTIMER_ENTRY, cpu, current->pid, now);
	r.hrtimer.hrtimer = (u64)timer;
	r.hrtimer.function = (u64)timer->function;
	bpf_probe_read_kernel(&r.hrtimer.now, sizeof(r.hrtimer.now), expires);
	record(ctx, &r);
}

/* worked: see HRTIMER_WORKED. */
static __always_inline void record_hrtimer_exit(void *ctx, struct hrtimer *timer, struct task_struct *current,
						struct cpu_state *me, bool worked, u32 cpu, u64 now)
{
	struct record r = {};

	if (me && is_tick(timer, percpu_base(current, &me->percpu, cpu))) {
		u64 start = me->tick_ns;

		me->tick_ns = 0;
		if (!start || (!worked && (s64)(now - start) < (s64)record_irq_floor))
			return;
		record_head(&r, REC_TICK, cpu, current->pid, now);
		r.hrtimer.function = (u64)timer->function;
		r.hrtimer.now = start;
	} else {
		record_head(&r, REC_HRTIMER_EXIT, cpu, current->pid, now);
	}
	r.hrtimer.hrtimer = (u64)timer;
	record(ctx, &r);
}

static __always_inline int record_timer_entry(void *ctx, struct timer_list *timer, unsigned long now)
{
	struct record r;

	record_init(&r, REC_TIMER_ENTRY);
	r.timer.timer = (u64)timer;
	r.timer.function = (u64)timer->function;
	r.timer.now = now;
	tcp_timer(&r.timer, now);
	return record(ctx, &r);
}

/* The timer's function may have freed it. */
static __always_inline int record_timer_exit(void *ctx, struct timer_list *timer)
{
	struct record r;

	record_init(&r, REC_TIMER_EXIT);
	r.timer.timer = (u64)timer;
	return record(ctx, &r);
}

/* -------------------------------------------------------------- workqueue */

static __always_inline int record_work_queue(void *ctx, int req_cpu, struct pool_workqueue *pwq,
					     struct work_struct *work, u32 context)
{
	struct workqueue_struct *wq = pwq->wq;
	struct record r;

	record_init(&r, REC_WORK_QUEUE);
	r.queue.work = (u64)work;
	r.queue.function = (u64)work->func;
	r.queue.req_cpu = req_cpu;
	r.queue.context = context;
#pragma unroll
	for (int i = 0; i < 3; i++)
		((u64 *)r.queue.name)[i] = ((u64 *)wq->name)[i];
	return record(ctx, &r);
}

static __always_inline int record_work_start(void *ctx, struct work_struct *work)
{
	struct record r;

	record_init(&r, REC_WORK_START);
	r.work.work = (u64)work;
	r.work.function = (u64)work->func;
	return record(ctx, &r);
}

/* The work may be freed by now: its address is all there is. */
static __always_inline int record_work_end(void *ctx, struct work_struct *work)
{
	struct record r;

	record_init(&r, REC_WORK_END);
	r.work.work = (u64)work;
	return record(ctx, &r);
}

/* -------------------------------------------------------- memory, reclaim */

/* x86 alone has these two tracepoints. */
static __always_inline int record_fault(void *ctx, u16 type, unsigned long address, void *regs, unsigned long code)
{
	struct record r;

	record_init(&r, type);
	r.fault.address = address;
	r.fault.ip = ((struct pt_regs___x86 *)regs)->ip;
	r.fault.error_code = code;
	return record(ctx, &r);
}

static __always_inline int record_reclaim(void *ctx, u16 type, u32 kind, int order, u64 reclaimed)
{
	struct record r;

	record_init(&r, type);
	r.reclaim.kind = kind;
	r.reclaim.order = order;
	r.reclaim.reclaimed = reclaimed;
	return record(ctx, &r);
}

static __always_inline int record_compaction(void *ctx, u16 type, bool sync, int status)
{
	struct record r;

	record_init(&r, type);
	r.reclaim.sync = sync;
	if (type == REC_COMPACTION_END)
		r.reclaim.status = status;
	return record(ctx, &r);
}

/* -------------------------------------------------------------------- net */

static __always_inline void net_name(struct record *r, struct net_device *dev)
{
	if (!dev)
		return;
	((u64 *)r->net.dev)[0] = ((u64 *)dev->name)[0];
	((u64 *)r->net.dev)[1] = ((u64 *)dev->name)[1];
}

/* What runs on top of the task that sends a packet, without its number. */
static __always_inline u32 packet_context(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u32 in = running_in(current, me ? percpu_base(current, &me->percpu, cpu) : 0);

	if (!in || in == IN_UNKNOWN)
		return WAKER_TASK;
	return (in & IN_HARDIRQ ? WAKER_IRQ : WAKER_SOFTIRQ) | WAKER_NUMBER;
}

static __always_inline int record_packet(void *ctx, u16 type, struct sk_buff *skb)
{
	struct record r;

	record_init(&r, type);
	r.net.skb = (u64)skb;
	r.net.bytes = skb->len;
	if (type == REC_NET_QUEUE)
		r.net.context = packet_context();
	net_name(&r, skb->dev);
	return record(ctx, &r);
}

static __always_inline int record_napi_poll(void *ctx, struct napi_struct *napi, int work, int budget)
{
	struct record r;

	record_init(&r, REC_NAPI_POLL);
	r.net.work = work;
	r.net.budget = budget;
	net_name(&r, napi->dev);
	return record(ctx, &r);
}

/* ------------------------------------------------------------------ power */

static __always_inline int record_power(void *ctx, u16 type, u32 state, u32 cpu)
{
	struct record r;

	record_init(&r, type);
	r.power.state = state;
	r.power.cpu = cpu;
	return record(ctx, &r);
}

/* --------------------------------------------------------------- throttle */

/*
 * A cgroup's CPU quota. There is no tracepoint: these are functions of
 * kernel/sched/fair.c, and need a kernel that lets fexit be attached. What a
 * switch tells (sched.h) needs none.
 */
static __always_inline void record_throttle(void *ctx, u16 type, struct cfs_rq *queue)
{
	struct record r;

	record_init(&r, type);
	r.throttle.cgroup = queue->tg->css.cgroup->kn->id;
	r.throttle.cpu = queue->rq->cpu;
	record(ctx, &r);
}

/* -------------------------------------------------------------------- kvm */

/*
 * Virtual CPUs of guests on this machine. Why a guest was left is not among
 * what the tracepoint hands out: the reason stays 0. The verifier thinks that
 * vcpu may be NULL: the tracepoint is of a module.
 */
static __always_inline int record_kvm_entry(void *ctx, struct kvm_vcpu *vcpu)
{
	struct record r;

	if (!vcpu)
		return 0;
	record_init(&r, REC_KVM_ENTRY);
	r.kvm.vcpu = vcpu->vcpu_id;
	return record(ctx, &r);
}

static __always_inline int record_kvm_exit(void *ctx, struct kvm_vcpu *vcpu)
{
	struct record r;

	if (!vcpu)
		return 0;
	record_init(&r, REC_KVM_EXIT);
	r.kvm.vcpu = vcpu->vcpu_id;
	r.kvm.ip = vcpu_ip(vcpu); /* with Intel's, as of an earlier exit if nobody asked since */
	return record(ctx, &r);
}

#endif
