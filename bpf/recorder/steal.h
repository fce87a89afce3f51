/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Time that the hypervisor has taken away. No tracepoint tells of it, so
 * what runs often on every CPU samples it. A kernel with
 * CONFIG_PARAVIRT_TIME_ACCOUNTING reads the hypervisor's clock whenever it
 * updates that of a run queue (kernel/sched/core.c, update_rq_clock_task());
 * of others, KVM's clock itself is read.
 */
#ifndef TAILCAM_RECORDER_STEAL_H
#define TAILCAM_RECORDER_STEAL_H

#include "lib/core_fixes.h"
#include "recorder/ring.h"

/* Less is not told until it has grown to that much: a CPU is taken away for a moment all the time. */
#define STEAL_LEAST_NS 10000

/* arch/x86/include/uapi/asm/kvm_para.h */
struct kvm_steal_time {
	u64 steal;
} CORE;

/* A per-CPU variable of the kernel, a struct kvm_steal_time; tracker/steal.go makes the reference. */
extern void steal_time __ksym __weak;

const volatile bool steal_kvm; /* the kernel has it, and no run queue tells */

/*
 * Samples it, and records what it has grown by since the last samples on this CPU. Called with
 * preemption off, where the run queue's clock has just been updated, or may
 * have been: only then it counts for a sample. Another CPU may have done so
 * before the hypervisor told of what it took, so that the sample before the last
 * one is what was surely before it.
 */
static __always_inline void steal_sample(void *ctx, struct task_struct *current, struct cpu_state *me, u32 cpu, u64 now)
{
	u64 stolen, clock, grown;
	struct record r;

	if (!me || now - me->steal_last_ns < STEAL_LEAST_NS)
		return; /* there was no time to take that much */
	if (steal_kvm) {
		stolen = ((struct kvm_steal_time *)bpf_this_cpu_ptr(&steal_time))->steal;
		clock = now;
	} else if (queue_knows_steal(current)) {
		struct rq *queue = current->se.cfs_rq->rq;

		stolen = queue->prev_steal_time_rq;
		clock = queue->clock;
	} else {
		return;
	}
	if (clock == me->steal_clock)
		return;
	me->steal_clock = clock;
	grown = stolen - me->steal_seen;
	if (grown) {
		if (me->steal_before_ns && grown < STEAL_LEAST_NS)
			return;
		if (me->steal_before_ns) {
			__builtin_memset(&r, 0, sizeof(r));
			record_head(&r, REC_STEAL, cpu, current->pid, now);
			r.steal.stolen_ns = grown;
			r.steal.since_ns = me->steal_before_ns;
			record(ctx, &r);
		}
		me->steal_seen = stolen;
	}
	me->steal_before_ns = me->steal_last_ns;
	me->steal_last_ns = now;
}

#endif
