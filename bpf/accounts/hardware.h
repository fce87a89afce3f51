/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Hardware counters, read at switches. Of a slice in which a thread has switched tokens, it
 * is not known which of them had how much: that is of its process.
 */
#ifndef TAILCAM_ACCOUNT_HARDWARE_H
#define TAILCAM_ACCOUNT_HARDWARE_H

#include "accounts/account.h"

const volatile bool account_hardware; /* the group is on, and the machine has counters */

/* A counter of each CPU. Written by the daemon. */
#define HARDWARE_COUNTER(name)                               \
	struct {                                             \
		__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); \
		__uint(key_size, sizeof(u32));               \
		__uint(value_size, sizeof(u32));             \
	} name SEC(".maps")

HARDWARE_COUNTER(hardware_cycles);
HARDWARE_COUNTER(hardware_instructions);
HARDWARE_COUNTER(hardware_misses);

/* 0: this CPU has none, or others have them all. */
static __always_inline u64 hardware_read(void *counter)
{
	struct bpf_perf_event_value v = {};

	return bpf_perf_event_read_value(counter, BPF_F_CURRENT_CPU, &v, sizeof(v)) ? 0 : v.counter;
}

/* A thread gets the CPU. */
static __always_inline void hardware_begin(struct activity_thread_state *state)
{
	if (!account_hardware)
		return;
	state->counters[0] = hardware_read(&hardware_cycles);
	state->counters[1] = hardware_read(&hardware_instructions);
	state->counters[2] = hardware_read(&hardware_misses);
}

static __always_inline void hardware_add(struct activity_account *account, u32 value, u64 from, u64 to)
{
	if (from && to > from)
		account_add(account, value, to - from);
}

/* It leaves, and carries a token since then. account: of that; NULL: none. */
static __always_inline void hardware_credit(struct account_thread *thread, struct activity_account *account, u64 since)
{
	struct activity_thread_state *state = thread->state;

	if (!account_hardware || state->tid != thread->tid || state->out_ns)
		return;
	if (since > state->slice_ns)
		account = account_element(thread->process.accounts, 0);
	if (!account)
		return;
	hardware_add(account, ACTIVITY_CYCLES, state->counters[0], hardware_read(&hardware_cycles));
	hardware_add(account, ACTIVITY_INSTRUCTIONS, state->counters[1], hardware_read(&hardware_instructions));
	hardware_add(account, ACTIVITY_CACHE_MISSES_HW, state->counters[2], hardware_read(&hardware_misses));
}

#endif
