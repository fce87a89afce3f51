/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tasks that carry a chain, and what each CPU does just now. */
#ifndef TAILCAM_TRACKER_CHAIN_TABLE_H
#define TAILCAM_TRACKER_CHAIN_TABLE_H

#include "abi/chain.h"
#include "lib/pending.h"
#include "lib/task.h"

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
	u32 index; /* slot + 1 of the chain whose task runs here; 0: it carries none */
	u32 tid;
	u32 in_irq, irq_number;
	u64 irq_name; /* the address of */
	u64 timer_ns;
	u32 in_timer;
	u32 in_softirq; /* vector + 1 */
	u32 softirq_tid, softirq_index;
	u64 flip; /* bit of a vector: which of its two chains the next raise writes */
	u64 raised_ns[CHAIN_VECTORS];
	struct chain irq, timer;
	struct chain raised[2 * CHAIN_VECTORS]; /* the one that runs, and the one that waits */
};

/* Tasks that carry a chain; a key stands in one bucket, nowhere else. Written here. Sized by the daemon. */
ARRAY_MAP(chain_keys, struct bucket);
ARRAY_MAP(chain_slots, struct chain_slot);

/* What each CPU does just now; written by that CPU. Sized by the daemon: CPUs. */
MAP(chain_cpus, ARRAY, 0, 1, u32, struct chain_cpu);

/* How many tasks carry an origin: its time above, their number in the low byte. Written here. Fixed size. */
MAP(chain_accounts, ARRAY, 0, CHAIN_ACCOUNTS, u32, u64);

static __always_inline struct chain_cpu *chain_this_cpu(u32 cpu)
{
	return bpf_map_lookup_elem(&chain_cpus, &cpu);
}

static __always_inline struct chain_slot *chain_slot_at(int index)
{
	u32 i = index;

	return bpf_map_lookup_elem(&chain_slots, &i);
}

/*
 * Few tasks carry a chain at once, and most that are looked for carry none. So
 * a key has eight slots only, all in one cache line, so that reading one
 * tells that it is not there. Spread, since the tasks of one process, which
 * are often woken together, would fill neighbouring lines to the brim.
 */
static __always_inline u32 chain_bucket(u32 tid)
{
	return home(tid, chain_mask);
}

/* Clocks of two CPUs may differ by a little: never negative. */
static __always_inline u64 chain_age(u64 origin, u64 now)
{
	s64 age = now - origin;

	return age > 0 ? age : 0;
}

/* Appends a stage; false: there is no room, and the stage before goes on. */
static __always_inline bool chain_add(struct chain *c, u32 kind, u32 cpu, u64 now, u32 id, u32 pid)
{
	struct chain_stage *s;
	u32 n = c->stages;

	barrier_var(n);
	if (n >= CHAIN_STAGES) {
		c->truncated = 1;
		return false;
	}
	s = &c->stage[n];
	s->packed = (chain_age(c->origin_ns, now) & CHAIN_NS_MASK) | (u64)(cpu & CHAIN_CPU_MASK) << CHAIN_CPU_SHIFT |
		    (u64)kind << CHAIN_KIND_SHIFT;
	s->id = id;
	s->pid = pid;
	s->name[0] = 0;
	c->stages = n + 1;
	return true;
}

/* The same for a stage of a task. */
static __always_inline bool chain_add_task(struct chain *c, u32 kind, u32 cpu, u64 now, struct task_struct *p)
{
	u32 n = c->stages;

	if (!chain_add(c, kind, cpu, now, p->pid, p->tgid))
		return false;
	barrier_var(n);
	if (n < CHAIN_STAGES)
		COPY_COMM(c->stage[n].name, p);
	return true;
}

/* Takes over the way so far. */
static __always_inline void chain_copy(struct chain *to, struct chain *from)
{
	u32 bytes = from->stages * (u32)sizeof(struct chain_stage);

	to->origin_ns = from->origin_ns;
	to->from = from->from;
	to->stages = from->stages;
	to->truncated = from->truncated;
	to->end = 0;
	to->tasks = from->tasks;
	to->vectors = from->vectors;
	to->irq = from->irq;
	barrier_var(bytes);
	if (bytes <= sizeof(to->stage))
		bpf_probe_read_kernel(to->stage, bytes, from->stage);
}

/* An empty chain; origin 0: no rule wants what begins here. */
static __always_inline void chain_init(struct chain *c, u32 from, u64 now)
{
	c->origin_ns = chain_from & from ? now : 0;
	c->from = from;
	c->stages = 0;
	c->truncated = 0;
	c->tasks = 0;
	c->vectors = 0;
	c->irq = CHAIN_NO_IRQ;
}

/* The chain of a task ends; false: someone else has ended it. */
static __always_inline bool chain_finish(struct chain_slot *slot, int index, u64 start)
{
	if (__sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return false;
	pending_release(&chain_keys, index);
	return true;
}

/*
 * One task more carries this origin; false: too many do. The first one needs
 * no account. Two origins that meet in one account take it from each other;
 * each goes on from what it knows itself, so there is an end to that as well.
 */
static __always_inline bool chain_count(struct chain *c)
{
	u32 index = (u32)((c->origin_ns * HASH_FACTOR) >> 40) & (CHAIN_ACCOUNTS - 1);
	u64 tag = c->origin_ns << 8, *account;
	u32 n = c->tasks;

	if (!n) {
		c->tasks = 1;
		return true;
	}
	account = bpf_map_lookup_elem(&chain_accounts, &index);
	if (!account)
		return false;
	for (int i = 0; i < 4; i++) { /* another CPU may count at the same time */
		u64 v = *(volatile u64 *)account;

		if ((v & ~0xffULL) == tag && (v & 0xff) > n)
			n = v & 0xff;
		if (n >= CHAIN_TASKS)
			return false;
		if (__sync_val_compare_and_swap(account, v, tag | (n + 1)) == v)
			break;
	}
	c->tasks = n + 1;
	return true;
}

/*
 * The slot for p's chain, empty; NO_SLOT: p is to have none from here. Only a
 * waker claims, and holds p's lock; only the CPU on which p runs releases.
 */
static __always_inline int chain_claim(struct task_struct *p, struct cpu_state *state, u64 now)
{
	u32 tid = p->pid, b = chain_bucket(tid);
	int index = bucket_find(&chain_keys, b, tid);
	struct chain_slot *slot;
	u64 start;

	if (index < 0) {
		index = bucket_claim(&chain_keys, b, tid);
		if (index < 0)
			state->table_full[TRACK_CHAIN]++;
		return index;
	}
	slot = chain_slot_at(index);
	if (!slot)
		return NO_SLOT;
	start = slot->start_ns;
	/* Off its CPU and yet it carries one: its last switch was not seen. Or its CPU is just about to end it. */
	if (start && (!task_on_rq(p) || chain_age(start, now) > chain_age_ns) && !task_on_cpu(p) &&
	    (slot->phase & CHAIN_PHASE_MASK) != CHAIN_PHASE_LOCK &&
	    __sync_val_compare_and_swap(&slot->start_ns, start, 0) == start) {
		state->replaced[TRACK_CHAIN]++;
		return index;
	}
	if ((slot->phase & CHAIN_PHASE_MASK) != CHAIN_PHASE_LOCK)
		state->chain_met++;
	return NO_SLOT;
}

#endif
