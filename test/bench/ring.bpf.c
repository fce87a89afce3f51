//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The recorder's ring and nothing else: one record at each context switch, of either backend. */
#include "recorder/ring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/sched_switch")
int ring_alone(void *ctx)
{
	struct record r = {};

	record_head(&r, REC_SWITCH, bpf_get_smp_processor_id(), 1, 1);
	record(ctx, &r);
	return 0;
}
