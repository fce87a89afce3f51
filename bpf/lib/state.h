/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What all parts share: knobs, which are set before load, the generation of the
 * rules, and each CPU's own state.
 */
#ifndef TAILCAM_STATE_H
#define TAILCAM_STATE_H

#include "abi/counters.h"
#include "abi/tracker.h"
#include "lib/kernel.h"

#define NSEC_PER_SEC 1000000000ULL

/*
 * The daemon's own process and its helpers: what they do is never an outlier. Set anew by a
 * daemon that takes over, and as helpers come and go; read past floors only.
 */
volatile u32 self_pid;
volatile u32 self_helpers[SELF_HELPERS]; /* 0: none */

static __always_inline bool is_self(u32 pid)
{
	if (pid == self_pid)
		return true;
	if (!pid)
		return false;
	/* Unrolled, it would need more stack than there is. */
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < SELF_HELPERS; i++)
		if (pid == self_helpers[i])
			return true;
	return false;
}

/* Not x86: releasing a slot needs a barrier. */
const volatile bool weakly_ordered;

/* The low bit selects the current one of two generations of rules. Written by the daemon. */
volatile u32 generation;

#define MAP(map, kind, flags, n, key_type, value_type) \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_##kind);     \
		__uint(map_flags, flags);              \
		__uint(max_entries, n);                \
		__type(key, key_type);                 \
		__type(value, value_type);             \
	} map SEC(".maps")

/* Mapped by user space, which sets its size. */
#define ARRAY_MAP(map, value_type) MAP(map, ARRAY, BPF_F_MMAPABLE, 1, u32, value_type)

/* Each CPU's own state and counters; written by that CPU, read by the daemon. Sized by it: CPUs. */
ARRAY_MAP(cpus, struct cpu_state);

static __always_inline struct cpu_state *this_cpu(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

#endif
