/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Idle CPUs and their frequency, for the recorder's group power. */
#ifndef TAILCAM_POWER_H
#define TAILCAM_POWER_H

#include "recorder.h"

static __always_inline void record_power(void *ctx, u16 type, u32 state, u32 cpu)
{
	struct record r;

	record_begin(&r, type);
	r.power.state = state;
	r.power.cpu = cpu;
	record(ctx, &r);
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int cpu)
{
	record_power(ctx, REC_CPU_IDLE, state, cpu);
	return 0;
}

SEC("tp_btf/cpu_frequency")
int BPF_PROG(cpu_frequency, unsigned int khz, unsigned int cpu)
{
	record_power(ctx, REC_CPU_FREQUENCY, khz, cpu);
	return 0;
}

#endif
