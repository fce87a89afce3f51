/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The flight recorder: fixed records into the per-CPU rings of the live bank.
 * The outlier that may have a snapshot switches banks, for all CPUs with one
 * store, so that the history before it cannot be overwritten any more.
 */
#ifndef TAILCAM_RECORDER_H
#define TAILCAM_RECORDER_H

#include "state.h"

static __always_inline void record_head(struct record *r, u16 type, u32 cpu, u32 tid, u64 now)
{
	r->type = type;
	r->cpu = cpu;
	r->tid = tid;
	r->time_ns = now;
}

/*
 * Writes r into a ring of plain memory. The position is taken atomically: an
 * interrupt may record in between. The time is written last, so a record that
 * is not complete yet has none.
 */
static __always_inline void record_into_memory(struct record *r, struct cpu_state *cpu, u32 bank)
{
	u32 n = __sync_fetch_and_add(&cpu->position[bank], 1);
	u32 at = ((r->cpu * 2 + bank) << record_shift) + (n & record_mask);
	struct record *to = bpf_map_lookup_elem(&records, &at);

	if (!to) { /* a CPU that came after the rings were made */
		__sync_fetch_and_add(&cpu->record_lost, 1);
		return;
	}
	*(volatile u64 *)&to->time_ns = 0;
	*(volatile u64 *)to = *(u64 *)r;
#pragma unroll
	for (int i = 0; i < 6; i++)
		*(volatile u64 *)&to->raw[i] = r->raw[i];
	*(volatile u64 *)&to->time_ns = r->time_ns;
}

/* Writes r into the live bank's ring of this CPU. */
static __always_inline void record(void *ctx, struct record *r)
{
	struct cpu_state *cpu = this_cpu(r->cpu);
	u32 bank = recorder.bank & 1;
	long err;

	if (!cpu)
		return;
	if (record_mmap) {
		record_into_memory(r, cpu, bank);
		return;
	}
	if (bank)
		err = bpf_perf_event_output(ctx, &bank1, BPF_F_CURRENT_CPU, r, sizeof(*r));
	else
		err = bpf_perf_event_output(ctx, &bank0, BPF_F_CURRENT_CPU, r, sizeof(*r));
	if (err)
		__sync_fetch_and_add(&cpu->record_lost, 1);
	else
		cpu->recorded++; /* an interrupt in between may lose one: only a rate is made of it */
}

/* Switches banks unless the other one is still frozen; true: it did. */
static __always_inline bool freeze(u64 now)
{
	if (__sync_val_compare_and_swap(&recorder.frozen, 0, 1))
		return false;
	recorder.frozen_ns = now;
	recorder.freezes++;
	recorder.bank ^= 1;
	return true;
}

#endif
