/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From "some rule wants it" to the ring buffer: counters, the snapshot
 * limiter, the freeze, the hand-over.
 */
#ifndef TAILCAM_OUTLIER_H
#define TAILCAM_OUTLIER_H

#include "lib/limit.h"
#include "lib/messages.h"
#include "lib/rules.h"
#include "recorder/ring.h"

/* Empties a scratch, and fills in its outlier's head. */
static __always_inline void outlier_reset(struct scratch *s, u32 tracker, u32 cpu, u64 start, u64 now)
{
	__builtin_memset(&s->facts, 0, CLEARED_FACTS);
	s->tick = 0;
	s->timed_out = 0;
	s->seen_ns = 0;
	/* In two steps: the compiler unrolls a kilobyte at most. */
	__builtin_memset(&s->out, 0, __builtin_offsetof(struct outlier, extra));
	barrier();
	__builtin_memset((u8 *)&s->out + __builtin_offsetof(struct outlier, extra), 0,
			 __builtin_offsetof(struct outlier, kernel) - __builtin_offsetof(struct outlier, extra));
	s->facts.generation = generation;
	s->facts.syscall = -1;
	s->facts.cpu = cpu;
	s->out.type = OUTLIER_TYPE;
	s->out.tracker = tracker;
	s->out.generation = s->facts.generation;
	s->out.start_ns = start;
	s->out.time_ns = now;
	s->out.cpu = cpu;
	s->out.syscall = -1;
}

/* Scratch number n of this CPU, its outlier's head filled in. */
static __always_inline struct scratch *outlier_init_in(u32 n, u32 tracker, u32 cpu, u64 start, u64 now)
{
	u32 index = cpu * SCRATCHES + n;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &index);

	if (s)
		outlier_reset(s, tracker, cpu, start, now);
	return s;
}

/* The scratch of this CPU and tracker. */
static __always_inline struct scratch *outlier_init(u32 tracker, u32 cpu, u64 start, u64 now)
{
	return outlier_init_in(tracker, tracker, cpu, start, now);
}

/* Who: the facts that rules ask for, and the same in the outlier. */
static __always_inline void outlier_task(struct scratch *s, struct task_struct *p)
{
	bool kthread = p->flags & PF_KTHREAD;

	s->out.tid = s->facts.tid = p->pid;
	s->out.pid = s->facts.pid = p->tgid;
	s->out.uid = s->facts.uid = p->cred->uid.val;
	s->out.cgroup_id = s->facts.cgroup_id = p->cgroups->dfl_cgrp->kn->id;
	bpf_probe_read_kernel(s->facts.comm, TASK_COMM_LEN, p->comm);
	__builtin_memcpy(s->out.comm, s->facts.comm, TASK_COMM_LEN);
	s->facts.thread = kthread ? THREAD_KERNEL : THREAD_USER;
	if (kthread)
		s->out.flags |= OUTLIER_KTHREAD;
}

static __always_inline void raise_worst(struct rule_state *state, u64 delay)
{
	for (int i = 0; i < 4; i++) { /* another CPU may raise it at the same time */
		u64 worst = state->worst_ns;

		if (delay <= worst || __sync_val_compare_and_swap(&state->worst_ns, worst, delay) == worst)
			return;
	}
}

static long emit_step(u32 i, struct rules_walk *w)
{
	struct scratch *s = w->s;
	struct rule_state *state;
	struct ring_use *use;
	struct outlier *out;
	struct rule *r;
	u64 delay = s->delay_ns;
	u32 flags, index, id, cause;
	bool decided, wanted;

	if (i >= MAX_RULES)
		return 1;
	index = s->fired[i].rule;
	cause = s->fired[i].cause;
	r = bpf_map_lookup_elem(&rules, &index);
	id = s->fired[i].id;
	state = bpf_map_lookup_elem(&rule_states, &id);
	if (!r || !state)
		return 1;
	if (cause == CAUSE_TIMEOUT && !s->fired[i].undecided && !(s->claimed >> (s->fired[i].id & 63) & 1))
		return 0; /* its exit was faster */
	use = ring_claim(id, sizeof(*out));
	if (!use) {
		__sync_fetch_and_add(&state->ring_full, 1);
		return 0;
	}
	out = bpf_ringbuf_reserve(&outliers, sizeof(*out), 0);
	if (!out) {
		ring_unclaim(use, sizeof(*out));
		__sync_fetch_and_add(&state->ring_full, 1);
		return 0;
	}
	flags = s->out.flags;
	decided = !s->fired[i].undecided;
	if (decided) {
		__sync_fetch_and_add(&state->outliers, 1);
		raise_worst(state, delay);
	} else {
		__sync_fetch_and_add(&state->undecided, 1);
		flags |= OUTLIER_UNDECIDED;
	}
	/* A timeout to be decided is a question only: it fires once it is answered. */
	wanted = r->snapshot && (decided || cause != CAUSE_TIMEOUT);
	if (wanted && snapshot_allows(r, state, s->out.time_ns, decided)) {
		flags |= OUTLIER_SNAPSHOT;
		if (freeze(s->out.time_ns))
			flags |= OUTLIER_FROZE;
	} else if (wanted && decided) {
		__sync_fetch_and_add(&state->suppressed, 1);
	}
	s->out.suppressed = state->suppressed - state->suppressed_last;
	if (decided && (flags & OUTLIER_SNAPSHOT))
		state->suppressed_last = state->suppressed;
	if (bpf_probe_read_kernel(out, sizeof(*out), &s->out)) {
		bpf_ringbuf_discard(out, 0);
		ring_unclaim(use, sizeof(*out));
		return 0;
	}
	out->flags = flags;
	out->cause = cause;
	out->rule = index;
	out->owner = id;
	out->undecided = s->fired[i].undecided;
	out->threshold_ns = s->fired[i].threshold_ns;
	/* The interrupt that this causes must come: see stacks.h. */
	bpf_ringbuf_submit(out, flags & OUTLIER_LATER ? BPF_RB_FORCE_WAKEUP : 0);
	return 0;
}

/* Sends one outlier for each rule that fired. */
static __always_inline void outlier_emit(struct scratch *s)
{
	struct rules_walk w = {.s = s};

	bpf_loop(s->fired_count, emit_step, &w, 0);
}

#endif
