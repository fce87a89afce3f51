/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the chain tracker is told and what it keeps. */
#ifndef TAILCAM_CHAIN_STATE_H
#define TAILCAM_CHAIN_STATE_H

#include "pending.h"
#include "state.h"

const volatile bool track_chain;
const volatile bool chain_user; /* a rule wants the return to user space */
const volatile u32 chain_mask;
const volatile u64 chain_age_ns; /* a chain older than this is not followed further */

/* Live, written by the daemon: floors by CHAIN_END_*, and CHAIN_FROM_* that any rule wants. */
volatile u64 floor_chain[FLOOR_ENDS];
volatile u32 chain_from;

#define CHAIN_TASKS 64		      /* that carry one origin */
#define CHAIN_STALE_NS 10000000000ULL /* a raised softirq that has not run by then: its run was not seen */
#define CHAIN_ACCOUNTS 4096	      /* power of two */
#define CHAIN_VECTORS 10
#define CHAIN_VEC_HRTIMER 8

/* chain_slot.phase */
#define CHAIN_PHASE_WOKEN 1
#define CHAIN_PHASE_RUN 2
#define CHAIN_PHASE_PREEMPTED 3
#define CHAIN_PHASE_LOCK 4
#define CHAIN_PHASE_MASK 7
#define CHAIN_PHASE_MERGED 8 /* | of the two above: without a stage of its own */

/* The chain that a task carries. */
struct chain_slot {
	u64 start_ns; /* the origin; 0: none */
	u64 woken_ns;
	u32 phase;
	u32 returned; /* 1: to user space unseen, 2: seen */
	u64 _room[5];
	struct chain chain;
	u64 _pad[5];
};

_Static_assert(sizeof(struct chain_slot) == 512, "whole cache lines");

/* One CPU's: written by it alone. */
struct chain_cpu {
	u32 at; /* place + 1 of the chain whose task runs here; 0: it carries none */
	u32 tid;
	u32 in_irq, irq_number;
	u64 irq_name; /* the address of */
	u64 timer_ns;
	u32 in_timer;
	u32 in_softirq; /* vector + 1 */
	u32 softirq_tid, softirq_at;
	u64 flip; /* bit of a vector: which of its two chains the next raise writes */
	u64 raised_ns[CHAIN_VECTORS];
	struct chain irq, timer;
	struct chain raised[2 * CHAIN_VECTORS]; /* the one that runs, and the one that waits */
};

/* Pending table: a task's place is in one bucket, nowhere else. */
ARRAY_MAP(chain_keys, struct bucket);
ARRAY_MAP(chain_slots, struct chain_slot);

/* One element a possible CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct chain_cpu);
} chain_cpus SEC(".maps");

/* How many tasks carry an origin: the origin's time above, the number in the low byte. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CHAIN_ACCOUNTS);
	__type(key, u32);
	__type(value, u64);
} chain_accounts SEC(".maps");

static __always_inline struct chain_cpu *chain_this_cpu(u32 cpu)
{
	return bpf_map_lookup_elem(&chain_cpus, &cpu);
}

static __always_inline struct chain_slot *chain_slot_at(int at)
{
	u32 i = at;

	return bpf_map_lookup_elem(&chain_slots, &i);
}

/*
 * Few tasks carry a chain at once, and most that are looked for carry none. So
 * a key has eight places only, all in one cache line, where one look is enough
 * to know that it is not there. Spread, since the tasks of one process, which
 * are often woken together, would fill neighbouring lines to the brim.
 */
static __always_inline u32 chain_bucket(u32 tid)
{
	return home(tid, chain_mask);
}

#endif
