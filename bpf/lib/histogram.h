/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The distribution of every delay, not only of those past a threshold: one
 * histogram a tracker always, one a rule and one a class of a rule where rules
 * ask for them. Each CPU has its own.
 *
 * Counting takes no atomics where one program does it: the kernel does not let
 * a program run inside itself on the same CPU, and it runs with preemption off
 * (sched_switch with interrupts off as well). So it is for wakeup and offcpu
 * (sched_switch), syscall (sys_exit; functions are SHARED), block (block_rq_complete), irq
 * (irq_handler_exit), and softirq, whose softirq_entry and softirq_exit do not
 * interrupt each other, as softirqs do not. A tracker
 * that ends work in several programs, of which one may interrupt the other, is
 * SHARED.
 */
#ifndef TAILCAM_HISTOGRAM_H
#define TAILCAM_HISTOGRAM_H

#include "abi/histogram.h"
#include "lib/bucket.h"
#include "lib/core_fixes.h"
#include "lib/messages.h"
#include "lib/pending.h"
#include "lib/rules.h"
#include "lib/task.h"

enum histogram_writer { ALONE, SHARED };

/* How the histograms of rules are written; an object whose programs interrupt each other says SHARED. */
#ifndef RULE_WRITER
#define RULE_WRITER ALONE
#endif

/* Distributions of every delay; how many of them each CPU has. */
const volatile bool histograms;
const volatile u32 histogram_stride;

/* Nothing is counted for now. Written by the daemon. */
volatile u32 histograms_shed;

/* Where each generation's rules with histograms stand; written by the daemon. */
volatile struct histogram_table histogram_tables[2];

/* Rules with histograms, two generations; written by the daemon before it flips generation. Fixed size. */
MAP(histogram_rules, ARRAY, 0, 2 * MAX_RULES, u32, struct histogram_rule);

/* Each CPU's histograms, one after the other; written by that CPU, read by the daemon. Sized by it. */
ARRAY_MAP(distributions, struct histogram);

/* Keys of classes, each at its histogram's number; claimed here, freed by the daemon. Sized by it. */
ARRAY_MAP(class_keys, struct bucket);

/* Counts delay in the histogram with this number of this CPU. */
static __always_inline void histogram_count(u32 number, u32 cpu, u64 delay, enum histogram_writer writer)
{
	u32 index = cpu * histogram_stride + number;
	struct histogram *h = bpf_map_lookup_elem(&distributions, &index);
	struct cpu_state *me;
	u32 bucket;

	if ((s64)delay < 0)
		delay = 0; /* the clocks of two CPUs differ by a little */
	bucket = histogram_bucket_of(delay);
	if (!h) {
		me = this_cpu(cpu);
		if (me)
			__sync_fetch_and_add(&me->histogram_lost, 1);
		return;
	}
	if (bucket >= HISTOGRAM_BUCKETS)
		bucket = HISTOGRAM_BUCKETS - 1; /* for the verifier: after 292 years */
	if (writer == SHARED) {
		__sync_fetch_and_add(&h->bucket[bucket], 1);
		__sync_fetch_and_add(&h->sum, delay);
	} else {
		h->bucket[bucket]++;
		h->sum += delay;
	}
	/* An interrupt in between may win with the lesser value: of its own tracker's two programs, once. */
	if (delay > h->max)
		h->max = delay;
	if (~delay > h->not_min)
		h->not_min = ~delay;
}

/*
 * Counts a delay of a tracker. Every exit of tracked work comes by here, or by
 * one of the functions at the end of this file.
 */
static __always_inline void histogram_delay(u32 tracker, u32 cpu, u64 delay, enum histogram_writer writer)
{
	if (histograms && !histograms_shed)
		histogram_count(tracker, cpu, delay, writer);
}

#define STAGED_AT_ONCE 4 /* each step of a loop is a call */

/*
 * A switch has two delays to count, and no cache to spare: it only notes them.
 * One of sixteen counts what has gathered, when the histograms' lines, and
 * these instructions, are fetched for all of them.
 */
static long histogram_unstage_step(u32 i, struct cpu_state **me)
{
	u32 cpu = bpf_get_smp_processor_id();

#pragma unroll
	for (u32 k = 0; k < STAGED_AT_ONCE; k++) {
		u64 delay = (*me)->delays[(i * STAGED_AT_ONCE + k) & (STAGED - 1)];

		histogram_count(delay & 1, cpu, delay >> 1, ALONE);
	}
	return 0;
}

static __noinline int histogram_unstage(struct cpu_state *me)
{
	bpf_loop(STAGED / STAGED_AT_ONCE, histogram_unstage_step, &me, 0);
	me->staged++;
	return 0;
}

/* Counts a delay of TRACK_WAKEUP or TRACK_OFFCPU. Only for sched_switch. */
static __always_inline void histogram_stage(u32 tracker, struct cpu_state *me, u64 delay)
{
	u32 n = me->staged;

	if (!histograms || histograms_shed)
		return;
	if ((s64)delay < 0)
		delay = 0; /* the clocks of two CPUs differ by a little */
	me->delays[n & (STAGED - 1)] = delay << 1 | tracker;
	if ((n & (STAGED - 1)) == STAGED - 1)
		histogram_unstage(me);
	else
		me->staged = n + 1;
}

/* -------------------------------------------------------- rules and classes */

/* Only this on the stack, of which the 512 bytes are nearly used up; all else is in the scratch. */
struct histogram_walk {
	struct scratch *s;
};

/* Sends the daemon a question, one a millisecond and CPU at most: the delays meanwhile ask the same. */
static __always_inline void histogram_ask(struct scratch *s, u32 undecided, u32 cpu, u64 now)
{
	struct facts *f = &s->facts;
	struct cpu_state *me = this_cpu(cpu);
	bool cgroup = undecided & (MATCH_CGROUP | MATCH_NOT_CGROUP);
	bool name = undecided & (MATCH_NAME | MATCH_NOT_NAME), function = undecided & MATCH_FUNCTION;
	struct question *q;

	if (!me || now - me->asked_ns < 1000000)
		return;
	me->asked_ns = now;
	q = message_reserve(RING_MESSAGES, sizeof(*q));
	if (!q)
		return; /* it is asked again */
	q->type = QUESTION_TYPE;
	q->kind = cgroup ? VERDICT_CGROUP : name ? VERDICT_NAME : function ? VERDICT_FUNCTION : VERDICT_DEVICE;
	q->generation = f->generation;
	q->id = cgroup ? f->cgroup_id : name ? f->name : function ? f->function : f->dev;
	/* Whoever counts with NEED_NAME has put the name where an outlier has it. */
	__builtin_memcpy(q->name, &s->out.extra[EXTRA_NAME / 8], sizeof(q->name));
	bpf_ringbuf_submit(q, 0);
}

/* The conditions of h that need no helper. */
static __always_inline bool histogram_may_want(const struct histogram_rule *h, const struct facts *f)
{
	u32 nr = f->syscall;

	if (h->threads && !(h->threads & f->thread))
		return false;
	if (h->states && !(h->states & f->state))
		return false;
	if (h->ops && !(h->ops & f->op))
		return false;
	if (h->preempted && !(h->preempted & (1 << (f->preempted & 1))))
		return false;
	if (!h->some_calls)
		return true;
	if (nr >= SYSCALLS)
		return h->no_call;
	return h->calls[(nr >> 6) & (SYSCALLS / 64 - 1)] >> (nr & 63) & 1;
}

/* The number of the class with this key; of what has no class if all are taken. */
static __always_inline u32 histogram_class(const struct histogram_rule *h, u64 key)
{
	u32 b = (h->classes >> 3) + home(key, h->class_mask);
	int index;

	if (!key)
		return h->own;
	index = bucket_find(&class_keys, b, key);
	if (index < 0)
		index = bucket_find(&class_keys, b ^ 1, key);
	if (index < 0) /* two CPUs may claim one key at once: the reader adds up what has the same key */
		index = bucket_claim(&class_keys, b, key);
	if (index < 0)
		index = bucket_claim(&class_keys, b ^ 1, key);
	return index < 0 ? h->own : (u32)index;
}

static long histogram_override_step(u32 i, struct histogram_walk *w)
{
	struct scratch *s = w->s;
	u32 index = s->histogram.override_base + i;
	struct override *o = bpf_map_lookup_elem(&overrides, &index);
	LOOP_RESULTS(go_on, stop);

	if (!o)
		return stop;
	if (match(&o->when, &s->facts, &s->undecided) == NO)
		return go_on;
	s->histogram.number = o->histogram;
	return stop;
}

static long histogram_step(u32 i, struct histogram_walk *w)
{
	struct scratch *s = w->s;
	struct facts *f = &s->facts;
	u32 index = s->histogram.base + i;
	struct histogram_rule *h = bpf_map_lookup_elem(&histogram_rules, &index);
	long go_on = 0;
	struct rule *r;
	u32 rule;

	barrier_var(go_on);
	if (!h)
		return 1;
	if (!histogram_may_want(h, f))
		return go_on;
	s->undecided = 0;
	s->histogram.number = h->own;
	if (h->rest || h->by == BY_OVERRIDE) {
		rule = h->rule;
		r = bpf_map_lookup_elem(&rules, &rule);
		if (!r)
			return go_on;
		if (h->rest && match(&r->when, f, &s->undecided) == NO)
			return go_on;
		if (h->by == BY_OVERRIDE) {
			s->histogram.override_base = (f->generation & 1) * MAX_OVERRIDES + r->first_override;
			bpf_loop(r->overrides, histogram_override_step, w, 0);
		}
	}
	if (s->undecided) {
		struct histogram *own;

		index = s->histogram.cpu * histogram_stride + h->own;
		own = bpf_map_lookup_elem(&distributions, &index);
		if (own)
			own->undecided++;
		histogram_ask(s, s->undecided, s->histogram.cpu, s->histogram.now);
		return go_on;
	}
	if (h->by == BY_DEVICE)
		s->histogram.number = histogram_class(h, (u64)f->dev + 1);
	else if (h->by == BY_SYSCALL)
		s->histogram.number = histogram_class(h, (u64)(u32)(f->syscall + 1));
	else if (h->by == BY_CGROUP)
		s->histogram.number = histogram_class(h, f->cgroup_id);
	histogram_count(s->histogram.number, s->histogram.cpu, s->histogram.delay, RULE_WRITER);
	return go_on;
}

/* Counts for count rules with histograms from slot base on. */
static __always_inline void histogram_range(struct scratch *s, u32 base, u32 count, u32 cpu, u64 now, u64 delay)
{
	struct histogram_walk w = {.s = s};

	s->histogram.base = base;
	s->histogram.cpu = cpu;
	s->histogram.now = now;
	s->histogram.delay = delay;
	bpf_loop(count, histogram_step, &w, 0);
}

/* Counts for all rules of the tracker. s->facts hold what they need to know. */
static __always_inline void histogram_evaluate(struct scratch *s, u32 tracker, u32 cpu, u64 now, u64 delay)
{
	u32 half = s->facts.generation & 1;

	histogram_range(s, half * MAX_RULES + histogram_tables[half].first[tracker],
			histogram_tables[half].count[tracker], cpu, now, delay);
}

/* Whether a rule of the tracker has a histogram. */
static __always_inline bool histogram_rules_of(u32 tracker)
{
	return histograms && !histograms_shed && histogram_tables[generation & 1].count[tracker];
}

/*
 * Clears s for the facts for the rules of a tracker. *needs: enum
 * histogram_need. Facts that are not needed, and that cost something to find,
 * may be left out.
 */
static __always_inline void histogram_facts_in(struct scratch *s, u32 tracker, u32 cpu, u32 *needs)
{
	u32 now = generation;

	*needs = histogram_tables[now & 1].needs[tracker];
	__builtin_memset(&s->facts, 0, CLEARED_FACTS);
	s->facts.generation = now;
	s->facts.syscall = -1;
	s->facts.cpu = cpu;
}

/* Scratch number n of this CPU, cleared; NULL: no rule of the tracker has a histogram. */
static __always_inline struct scratch *histogram_facts_at(u32 n, u32 tracker, u32 cpu, u32 *needs)
{
	u32 index = cpu * SCRATCHES + n;
	struct scratch *s;

	if (!histogram_rules_of(tracker))
		return NULL;
	s = bpf_map_lookup_elem(&scratches, &index);
	if (s)
		histogram_facts_in(s, tracker, cpu, needs);
	return s;
}

/* The same of the tracker's scratch. */
static __always_inline struct scratch *histogram_facts(u32 tracker, u32 cpu, u32 *needs)
{
	return histogram_facts_at(tracker, tracker, cpu, needs);
}

/* The facts of a task. */
static __always_inline void histogram_task(struct facts *f, struct task_struct *p, u32 needs)
{
	f->pid = p->tgid;
	f->tid = p->pid;
	f->thread = p->flags & PF_KTHREAD ? THREAD_KERNEL : THREAD_USER;
	if (needs & NEED_TASK) {
		f->uid = p->cred->uid.val;
		COPY_COMM(f->comm, p);
	}
	if (needs & NEED_CGROUP)
		f->cgroup_id = p->cgroups->dfl_cgrp->kn->id;
}

/*
 * Where the facts of task p for the rules of a tracker are, to be completed.
 * NULL: no rule of it has a histogram, or p is ours.
 */
static __always_inline struct scratch *histogram_rules_of_task(u32 tracker, struct task_struct *p, u32 cpu, u32 *needs)
{
	struct scratch *s = histogram_facts(tracker, cpu, needs);

	if (!s)
		return NULL;
	histogram_task(&s->facts, p, *needs);
	return is_self(s->facts.pid) ? NULL : s;
}

/* The same; counts the delay for the tracker before. */
static __always_inline struct scratch *histogram_of_task(u32 tracker, struct task_struct *p, u32 cpu, u64 delay,
							 u32 *needs)
{
	histogram_delay(tracker, cpu, delay, ALONE);
	return histogram_rules_of_task(tracker, p, cpu, needs);
}

#endif
