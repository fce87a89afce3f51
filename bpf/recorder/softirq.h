/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The account of softirqs while they have no hooks: interrupts of timers, of
 * which the kernel's tick is one, see from the preempt count that they have
 * interrupted one, as the kernel's own accounting does.
 */
#ifndef TAILCAM_RECORDER_SOFTIRQ_H
#define TAILCAM_RECORDER_SOFTIRQ_H

#include "lib/interrupts.h"
#include "recorder/ring.h"

#define SAMPLE_NS 500000 /* timers that expire sooner after the last one tell nothing more */
#define VECTORS 10

/* What a CPU's last sample has seen. */
struct softirq_sample {
	u64 last_ns;
	u32 begun[VECTORS]; /* by the kernel's own count */
	u32 within;	    /* it was in a softirq */
	u32 vec;	    /* in that one; SOFTIRQS: not known */
	u64 _pad;
};

_Static_assert(sizeof(struct softirq_sample) == 64, "one cache line");

/* One per CPU, written by that CPU only. Sized by the daemon: CPUs. */
ARRAY_MAP(softirq_samples, struct softirq_sample);

/* Counts the softirqs that have begun since the last sample; vectors: bits of theirs. */
static __always_inline u32 softirqs_begun(struct softirq_sample *s, u64 base, u32 *vectors)
{
	struct kernel_stat *stat = (void *)(base + percpu_kstat);
	u32 begun = 0, counts[VECTORS] = {};

	*vectors = 0;
	if (!base || !percpu_kstat)
		return 0;
	bpf_core_read(counts, sizeof(counts), &stat->softirqs);
#pragma unroll
	for (int i = 0; i < VECTORS; i++) {
		u32 n = counts[i] - s->begun[i];

		begun += n;
		if (n)
			*vectors |= 1 << i;
		s->begun[i] += n;
	}
	return begun;
}

/* An interrupt of a timer ends. Programs of timers that expire in a softirq tell nothing. */
static __noinline int softirq_sample(void *ctx, struct task_struct *current, struct cpu_state *me, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id(), begun, vectors, vec = SOFTIRQS;
	u64 base = percpu_base(current, &me->percpu, cpu), since;
	struct softirq_sample *s = bpf_map_lookup_elem(&softirq_samples, &cpu);
	bool backlog, within, same;
	struct record r = {};

	if (running_in(current, base) != IN_HARDIRQ || !s || now - s->last_ns < SAMPLE_NS)
		return 0;
	begun = softirqs_begun(s, base, &vectors);
	within = interrupts_softirq(current, base);
	same = s->within && base && percpu_kstat && !begun;
	since = s->last_ns;
	s->last_ns = now;
	s->within = within;
	if (!within)
		return 0;
	if (receives_packets(base, &backlog))
		vec = SOFTIRQ_NET_RX;
	else if (same && s->vec < SOFTIRQS)
		vec = s->vec;
	else if (vectors && !(vectors & (vectors - 1)))
#pragma unroll
		for (int i = 0; i < VECTORS; i++)
			if (vectors == 1 << i)
				vec = i;
	s->vec = vec;
	if (!since)
		return 0;
	record_head(&r, REC_INTERRUPTS, cpu, current->pid, now);
	r.interrupts.since_ns = since;
	r.interrupts.total_ns = now - since > 0xffffffff ? 0xffffffff : now - since;
	r.interrupts.count = begun;
	r.interrupts.vec = vec;
	r.interrupts.sampled = same ? INTERRUPTS_SAME : INTERRUPTS_SAMPLED;
	return record(ctx, &r);
}

#endif
