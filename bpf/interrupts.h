/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Interrupts, which the recorder and the trackers irq, softirq and chain want,
 * and timers, which the recorder, chain and the tick want. What
 * interrupts a CPU is noted there as well, so that a wake-up from it is not
 * put down to the task that was interrupted.
 */
#ifndef TAILCAM_INTERRUPTS_H
#define TAILCAM_INTERRUPTS_H

#include "chain.h"
#include "irq.h"
#include "recorder.h"
#include "steal.h"
#include "tick.h"

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq, struct irqaction *action)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u64 now = bpf_ktime_get_ns();

	if (me)
		me->in_irq = WAKER_IRQ | (irq & WAKER_NUMBER);
	if (record_irq) {
		struct record r = {};

		record_head(&r, REC_IRQ_ENTRY, cpu, current->pid, now);
		r.irq.irq = irq;
		bpf_probe_read_kernel_str(r.irq.name, sizeof(r.irq.name), action->name);
		record(ctx, &r);
	}
	if (track_irq)
		irq_begin(irq, action, current, cpu, me, now);
	if (track_chain)
		chain_irq_begin(cpu, irq, action, now);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq, struct irqaction *action, int ret)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u64 now = bpf_ktime_get_ns();

	if (me)
		me->in_irq = 0;
	if (record_irq) {
		struct record r = {};

		record_head(&r, REC_IRQ_EXIT, cpu, current->pid, now);
		r.irq.irq = irq;
		r.irq.ret = ret;
		record(ctx, &r);
	}
	if (track_irq)
		irq_end(ctx, irq, action, current, cpu, me, now);
	if (track_chain)
		chain_irq_end(cpu);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u64 now = bpf_ktime_get_ns();

	if (me) {
		me->softirq_tid = current->pid;
		me->in_softirq = WAKER_SOFTIRQ | vec;
	}
	if (record_irq) {
		struct record r = {};

		record_head(&r, REC_SOFTIRQ_ENTRY, cpu, current->pid, now);
		r.softirq.vec = vec;
		record(ctx, &r);
	}
	if (track_softirq)
		softirq_begin(ctx, vec, current, cpu, me, now);
	if (track_chain)
		chain_softirq_begin(vec, current->pid, cpu, now);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u64 now = bpf_ktime_get_ns();

	if (me)
		me->in_softirq = 0;
	if (record_irq) {
		struct record r = {};

		record_head(&r, REC_SOFTIRQ_EXIT, cpu, current->pid, now);
		r.softirq.vec = vec;
		record(ctx, &r);
	}
	if (track_softirq)
		softirq_end(ctx, vec, current, cpu, me, now);
	if (track_chain)
		chain_softirq_end(cpu);
	return 0;
}

/* Only for rules on how long softirqs wait, and for chains: the recorder has no use for it. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vec)
{
	if (track_softirq_raise)
		softirq_raised(vec);
	if (track_chain) {
		u32 cpu = bpf_get_smp_processor_id();

		chain_raise(vec, cpu, this_cpu(cpu), bpf_ktime_get_ns());
	}
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_expire_entry, struct hrtimer *timer, s64 *at)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();

	if (record_timer || track_chain) { /* not with the tick alone: its end would not be seen */
		struct task_struct *current = bpf_get_current_task_btf();
		struct cpu_state *me = this_cpu(cpu);

		if (me) {
			me->hrtimer_tid = current->pid;
			me->in_hrtimer = WAKER_HRTIMER;
		}
	}
	if (record_timer) {
		struct task_struct *current = bpf_get_current_task_btf();
		struct record r = {};

		record_head(&r, REC_HRTIMER_ENTRY, cpu, current->pid, now);
		r.hrtimer.hrtimer = (u64)timer;
		r.hrtimer.function = (u64)timer->function;
		bpf_probe_read_kernel(&r.hrtimer.now, sizeof(r.hrtimer.now), at);
		record(ctx, &r);
	}
	if (track_chain)
		chain_timer_begin(cpu, timer, now);
	if (timeouts)
		tick(now, cpu);
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_expire_exit, struct hrtimer *timer)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);

	if (me)
		me->in_hrtimer = 0;
	if (record_sched) /* the tick is such a timer */
		steal_look(ctx, bpf_get_current_task_btf(), me, cpu, bpf_ktime_get_ns());
	if (record_timer) {
		struct record r;

		record_begin(&r, REC_HRTIMER_EXIT);
		r.hrtimer.hrtimer = (u64)timer;
		record(ctx, &r);
	}
	if (track_chain)
		chain_timer_end(cpu);
	return 0;
}

#endif
