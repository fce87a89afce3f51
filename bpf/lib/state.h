/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What all parts share: knobs, which are set before load, the generation of the
 * rules, and each CPU's own state.
 */
#ifndef TAILCAM_STATE_H
#define TAILCAM_STATE_H

#include "abi/counters.h"
#include "lib/kernel.h"

#define NSEC_PER_SEC 1000000000ULL

/* The daemon's own process: what it does is never an outlier. */
const volatile u32 self_pid;

/* Not x86: releasing a slot needs a barrier. */
const volatile bool weakly_ordered;

/* The low bit selects one of two generations of rules: the live one. Written by the daemon. */
volatile u32 generation;

#define ARRAY_MAP(map, value_type)                 \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1);            \
		__type(key, u32);                  \
		__type(value, value_type);         \
	} map SEC(".maps")

/* One element a possible CPU; written by that CPU, read by the daemon. */
ARRAY_MAP(cpus, struct cpu_state);

static __always_inline struct cpu_state *this_cpu(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

#endif
