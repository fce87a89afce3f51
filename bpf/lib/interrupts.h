/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What interrupts the tasks of a CPU, and what a waker is part of. Each CPU has
 * slots of its own for the handlers and softirqs that run on it: the recorder,
 * the trackers irq and softirq, and whoever asks for a waker share them.
 */
#ifndef TAILCAM_INTERRUPTS_H
#define TAILCAM_INTERRUPTS_H

#include "abi/table.h"
#include "lib/core_fixes.h"
#include "lib/state.h"

/* How many may be inside each other on one CPU; more are counted as table_full. */
#define NESTED 4

/* A softirq that begins so soon after a handler was probably raised by it. */
#define RAISED_NS 20000

/* A handler or softirq that runs, or a softirq that waits to. */
struct interrupt_slot {
	u64 start_ns; /* 0: free; written last at the entry, first at the exit */
	u64 key;      /* irq; softirq that runs: vector << 32 | tid; that waits: vector */
	u64 task;     /* address of the interrupted task; 0 while it waits */
	u64 action;   /* irq: address of struct irqaction, which stays while its handler runs */
	u32 worked;   /* it woke a task, queued work or completed a request: its record is wanted, however short */
	s32 irq;      /* softirq: what may have raised it, as in struct record_softirq */
	/* Of a CPU's first slot of softirqs alone: the handler that has ended last; 0: its softirqs are over. */
	u64 irq_end_ns;
	u32 irq_ended;
	u32 _pad[3];
	/* Second cache line, only with timeouts. */
	struct deadline deadline;
	u64 _pad2[4];
};

_Static_assert(__builtin_offsetof(struct interrupt_slot, deadline) == 64, "what every run needs fills one cache line");
_Static_assert(sizeof(struct interrupt_slot) == 128, "two cache lines");

/* Runs of one kind that were too short for records. */
struct interrupt_sum {
	u64 since_ns;
	u32 total_ns;
	u32 count;
};

/* One CPU's; written by that CPU only. Others may look for what is stuck. */
struct interrupt_slots {
	struct interrupt_slot irq[NESTED];
	struct interrupt_slot softirq[NESTED];
	struct interrupt_slot raised[SOFTIRQS];
	struct interrupt_sum sums[SOFTIRQS]; /* by vector */
	struct interrupt_sum irq_sum;
	u64 _pad[6];
};

/* Each CPU's slots; written by that CPU, read by the tick. Sized by the daemon: CPUs. */
ARRAY_MAP(interrupts, struct interrupt_slots);

static __always_inline struct interrupt_slots *interrupts_of(u32 cpu)
{
	return bpf_map_lookup_elem(&interrupts, &cpu);
}

static __always_inline u64 softirq_key(u32 vector, struct task_struct *current)
{
	return (u64)vector << 32 | (u32)current->pid;
}

/*
 * Notes an entry. One of the same key is left over from an exit that was not
 * seen. counters: of its tracker; NULL: it has none. NULL: all slots are taken.
 */
static __always_inline struct interrupt_slot *interrupt_entry(struct interrupt_slot *slots, u64 key,
							      struct task_struct *current, void *action, u32 tracker,
							      struct cpu_state *counters, u64 now)
{
#pragma unroll
	for (int i = 0; i < NESTED; i++) {
		struct interrupt_slot *s = &slots[i];

		if (s->start_ns) {
			if (s->key != key)
				continue;
			if (counters)
				__sync_fetch_and_add(&counters->replaced[tracker], 1);
		}
		s->key = key;
		s->task = (u64)current;
		s->action = (u64)action;
		s->worked = 0;
		barrier();
		*(volatile u64 *)&s->start_ns = now;
		return s;
	}
	if (counters)
		__sync_fetch_and_add(&counters->table_full[tracker], 1);
	return NULL;
}

/* The slot that the entry of key took; NULL: it was not seen. */
static __always_inline struct interrupt_slot *interrupt_find(struct interrupt_slot *slots, u64 key)
{
#pragma unroll
	for (int i = 0; i < NESTED; i++) {
		struct interrupt_slot *s = &slots[i];

		if (s->start_ns && s->key == key)
			return s;
	}
	return NULL;
}

/* What is in slot has ended, and the kernel has skipped the program that tells (see tailcam.bpf.c). */
static __always_inline void interrupt_skipped(struct interrupt_slot *slot, u32 tracker, struct cpu_state *counters)
{
	if (counters)
		__sync_fetch_and_add(&counters->replaced[tracker], 1);
	slot->start_ns = 0;
}

/* A softirq begins in slot: notes whose handler may have raised it. */
static __always_inline void softirq_raised_by(struct interrupt_slots *mine, struct interrupt_slot *slot, u64 now)
{
	u64 end = mine->softirq[0].irq_end_ns;

	slot->irq = end && now - end < RAISED_NS ? (s32)mine->softirq[0].irq_ended : -1;
}

/* It ends: the same interrupt may have raised the next one. */
static __always_inline void softirq_raises(struct interrupt_slots *mine, struct interrupt_slot *slot, u64 now)
{
	mine->softirq[0].irq_end_ns = slot->irq >= 0 ? now : 0;
}

volatile u32 softirqs_unhooked; /* no program is attached to their entry and exit */

/*
 * Packets that are sent on this machine are received by the sender, in a system call, from the
 * backlog. Any other task is but interrupted.
 */
static __always_inline u32 packets_from(struct task_struct *current, bool backlog)
{
	if (backlog && !(current->flags & PF_KTHREAD) && trusted_syscall(trusted_regs(current)) >= 0)
		return WAKER_LOCAL;
	return WAKER_REMOTE;
}

/* Which softirq runs on this CPU, as WAKER_NUMBER holds it, where no hook has told. */
static __always_inline u32 softirq_unhooked(struct task_struct *current, u64 base)
{
	bool backlog;

	if (!softirqs_unhooked || !receives_packets(base, &backlog))
		return WAKER_NUMBER;
	return SOFTIRQ_NET_RX | packets_from(current, backlog);
}

/* The same where a hook has. */
static __always_inline u32 softirq_hooked(struct interrupt_slot *slot, struct task_struct *current, u64 base)
{
	u32 vector = (slot->key >> 32) & WAKER_NUMBER;
	bool backlog;

	if (vector != SOFTIRQ_NET_RX)
		return vector;
	receives_packets(base, &backlog);
	/* Where this cannot be asked, only a handler's end just before tells. */
	return vector | packets_from(current, slot->irq < 0 && (backlog || !percpu_softnet_data));
}

/* The innermost handler that runs on this CPU; NULL: none is known. */
static __always_inline struct interrupt_slot *irq_innermost(struct interrupt_slots *mine)
{
#pragma unroll
	for (int i = NESTED - 1; i >= 0; i--)
		if (mine->irq[i].start_ns)
			return &mine->irq[i];
	return NULL;
}

/* The softirq that runs on top of this task; on real-time kernels others may be on their way in other threads. */
static __always_inline struct interrupt_slot *softirq_of(struct interrupt_slots *mine, u32 tid)
{
#pragma unroll
	for (int i = NESTED - 1; i >= 0; i--)
		if (mine->softirq[i].start_ns && (u32)mine->softirq[i].key == tid)
			return &mine->softirq[i];
	return NULL;
}

/*
 * What runs on top of current, as WAKER_*, when it wakes a task, completes a
 * request or queues work: this makes its record wanted. Which handler or vector
 * it is, is known while their hooks are attached (group irq, trackers irq,
 * softirq and chain), that it is a timer with those of timers.
 */
static __always_inline u32 interrupt_works(struct task_struct *current, u32 cpu)
{
	struct cpu_state *me = this_cpu(cpu);
	u32 in = running_in(current, me ? percpu_base(current, &me->percpu, cpu) : 0);
	u32 tid = current->pid, context = WAKER_TASK;
	struct interrupt_slots *mine;
	struct interrupt_slot *slot;

	if (!in)
		return WAKER_TASK;
	mine = interrupts_of(cpu);
	/* Without a count: what runs alone on its CPU has the first slot. */
	if (in == IN_UNKNOWN && mine && !mine->irq[0].start_ns && !mine->softirq[0].start_ns && me && !me->in_hrtimer)
		return WAKER_TASK;
	if (mine && in & IN_HARDIRQ) {
		slot = irq_innermost(mine);
		if (slot) {
			slot->worked = 1;
			return WAKER_IRQ | (slot->key & WAKER_NUMBER);
		}
	}
	if (me && me->in_hrtimer && me->hrtimer_tid == tid) {
		me->in_hrtimer = HRTIMER_WORKED;
		context = WAKER_HRTIMER;
	}
	if (in == IN_HARDIRQ)
		return context ?: WAKER_IRQ | WAKER_NUMBER;
	slot = mine ? softirq_of(mine, tid) : NULL;
	if (slot) {
		slot->worked = 1;
		return context ?: WAKER_SOFTIRQ | softirq_hooked(slot, current, me ? me->percpu : 0);
	}
	if (in == IN_SOFTIRQ)
		return context ?: WAKER_SOFTIRQ | softirq_unhooked(current, me ? me->percpu : 0);
	return context;
}

#endif
