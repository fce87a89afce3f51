/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whether the conditions of a rule hold. All are decided here, but for those on a
 * cgroup, device or handler that the daemon has not seen yet: then the answer is
 * UNKNOWN, the daemon decides, and teaches the verdict.
 */
#ifndef TAILCAM_MATCH_H
#define TAILCAM_MATCH_H

#include "lib/core_fixes.h"
#include "lib/glob.h"
#include "lib/state.h"

enum decision {
	NO = 0,
	YES = 1,
	UNKNOWN = 2,
};

/* A glob on its way through the key of a span. */
struct key_walk {
	u64 pattern[SPAN_KEY_LEN / 8];
	u32 p, t;	  /* where we are */
	u32 star, resume; /* the last *, and the text position to retry from; star SPAN_KEY_LEN: none */
	u32 result;
	u32 _pad;
};

/* What conditions are held against. */
struct facts {
	u64 cgroup_id;
	u32 pid, tid, uid;
	u32 dev;
	s32 syscall;
	u8 op, state, thread, preempted; /* one bit each, but preempted: 0 or 1 */
	u32 generation;
	u64 sector;
	u64 name;     /* hash of the name of an interrupt handler or a work queue */
	u64 function; /* of a work item */
	u32 irq, cpu;
	u32 vector, phase; /* one bit each; chain: a bit of each vector on its way */
	u8 from, end;	   /* chain: one bit each, or two of from */
	char comm[TASK_COMM_LEN];
	struct glob_walk glob; /* here, as calls nest too deep for the kernel's stack */
	/* From here on of spans only, and not cleared with the rest. */
	u64 key[SPAN_KEY_LEN / 8 + 1]; /* text */
	struct key_walk key_walk;
};

#define CLEARED_FACTS __builtin_offsetof(struct facts, key)

/* ----------------------------------------------------------- names of tasks */

static __always_inline bool comm_in(struct facts *f, struct glob_range range)
{
	struct globs_walk w = {
		.one = &f->glob,
		.base = (f->generation & 1) * MAX_GLOBS + range.first,
	};

	__builtin_memcpy(f->glob.text, f->comm, TASK_COMM_LEN);
	bpf_loop(range.count, globs_step, &w, 0);
	return w.found;
}

/* ------------------------------------------------------------ keys of spans */

/* Patterns of keys, two generations; written by the daemon before it flips generation. Fixed size. */
MAP(key_globs, ARRAY, 0, 2 * MAX_KEY_GLOBS, u32, struct key_glob);

static long key_step(u32 i, struct facts **arg)
{
	struct facts *f = *arg;
	struct key_walk *w = &f->key_walk;
	u32 pi = w->p, ti = w->t;
	char p = 0, t = 0;
	LOOP_RESULTS(go_on, stop);

	barrier_var(pi);
	barrier_var(ti);
	if (pi < SPAN_KEY_LEN)
		p = ((char *)w->pattern)[pi & (SPAN_KEY_LEN - 1)];
	if (ti < SPAN_KEY_LEN)
		t = ((char *)f->key)[ti & (SPAN_KEY_LEN - 1)];
	if (p == '*') {
		w->star = w->p++;
		w->resume = w->t;
		return go_on;
	}
	if (!t) {
		w->result = !p;
		return stop;
	}
	if (p && (p == '?' || p == t)) {
		w->p++;
		w->t++;
		return go_on;
	}
	if (w->star == SPAN_KEY_LEN)
		return stop;
	w->p = w->star + 1;
	w->t = ++w->resume;
	return go_on;
}

struct keys_walk {
	struct facts *f;
	u32 base;
	u32 found;
};

static long keys_step(u32 i, struct keys_walk *w)
{
	u32 index = w->base + i;
	struct key_glob *g = bpf_map_lookup_elem(&key_globs, &index);
	struct facts *f = w->f;
	LOOP_RESULTS(go_on, stop);

	if (!g)
		return stop;
#pragma unroll
	for (int k = 0; k < SPAN_KEY_LEN / 8; k++) /* in words: bytes would all be on the stack at once */
		f->key_walk.pattern[k] = ((volatile u64 *)g->pattern)[k];
	f->key_walk.p = f->key_walk.t = f->key_walk.resume = f->key_walk.result = 0;
	f->key_walk.star = SPAN_KEY_LEN;
	bpf_loop(SPAN_KEY_LEN * SPAN_KEY_LEN * 2, key_step, &f, 0);
	if (!f->key_walk.result)
		return go_on;
	w->found = 1;
	return stop;
}

static __always_inline bool key_in(struct facts *f, struct glob_range range)
{
	struct keys_walk w = {
		.f = f,
		.base = (f->generation & 1) * MAX_KEY_GLOBS + range.first,
	};

	bpf_loop(range.count, keys_step, &w, 0);
	return w.found;
}

/* ----------------------------------------------------------- sets, verdicts */

/* Members of lists of numbers in conditions (pid, user, system call, …); written by the daemon. Fixed size. */
MAP(sets, HASH, BPF_F_NO_PREALLOC, 196608, struct set_key, u8);

/* Which conditions a cgroup, device or handler meets; written by the daemon as it is asked. Fixed size. */
MAP(verdicts, LRU_HASH, 0, 16384, struct verdict_key, u64);

static __always_inline bool set_has(u32 set, u32 value)
{
	struct set_key key = {.set = set, .value = value};

	return bpf_map_lookup_elem(&sets, &key);
}

/* An id for the name of a handler or a queue, for the daemon's verdict on it. */
static __always_inline u64 name_hash(const char *name)
{
	const u64 *words = (const u64 *)name;
	u64 h = 0;

#pragma unroll
	for (int i = 0; i < WORK_NAME_LEN / 8; i++) {
		h = (h ^ words[i]) * NAME_HASH_FACTOR;
		h ^= h >> NAME_HASH_SHIFT;
	}
	return h;
}

/* Bits of the cgroup or device conditions that hold; *known: the daemon has said so. */
static __always_inline u64 verdict(const struct facts *f, u32 kind, u64 id, bool *known)
{
	struct verdict_key key = {.id = id, .kind = kind, .generation = f->generation};
	u64 *bits = bpf_map_lookup_elem(&verdicts, &key);

	*known = bits;
	return bits ? *bits : 0;
}

/*
 * Whether all conditions of m hold for f. Bits of match_field that could not
 * be decided are added to *undecided. Certain conditions come first, so that
 * UNKNOWN is only said of what would match otherwise.
 */
__noinline int match(const struct conditions *m, struct facts *f, u32 *undecided)
{
	u32 want;
	u32 unknown = 0;
	bool known;
	u64 bits;

	if (!m || !f || !undecided)
		return NO;
	want = m->fields;
	if (!want)
		return YES;
	if ((want & MATCH_THREAD) && !(m->threads & f->thread))
		return NO;
	if ((want & MATCH_STATE) && !(m->states & f->state))
		return NO;
	if ((want & MATCH_OP) && !(m->ops & f->op))
		return NO;
	if ((want & MATCH_PREEMPTED) && m->preempted != f->preempted)
		return NO;
	if ((want & MATCH_FROM) && !(m->from & f->from))
		return NO;
	if ((want & MATCH_END) && !(m->ends & f->end))
		return NO;
	if ((want & MATCH_SECTOR) && (f->sector < m->first_sector || f->sector > m->last_sector))
		return NO;
	if ((want & MATCH_SYSCALL) && !set_has(m->syscall_set, f->syscall))
		return NO;
	if ((want & MATCH_NOT_SYSCALL) && set_has(m->not_syscall_set, f->syscall))
		return NO;
	if ((want & MATCH_PID) && !set_has(m->pid_set, f->pid))
		return NO;
	if ((want & MATCH_NOT_PID) && set_has(m->not_pid_set, f->pid))
		return NO;
	if ((want & MATCH_TID) && !set_has(m->tid_set, f->tid))
		return NO;
	if ((want & MATCH_NOT_TID) && set_has(m->not_tid_set, f->tid))
		return NO;
	if ((want & MATCH_UID) && !set_has(m->uid_set, f->uid))
		return NO;
	if ((want & MATCH_NOT_UID) && set_has(m->not_uid_set, f->uid))
		return NO;
	if ((want & MATCH_VECTOR) && !(m->vectors & f->vector))
		return NO;
	if ((want & MATCH_PHASE) && !(m->phases & f->phase))
		return NO;
	if ((want & MATCH_IRQ) && !set_has(m->irq_set, f->irq))
		return NO;
	if ((want & MATCH_NOT_IRQ) && set_has(m->not_irq_set, f->irq))
		return NO;
	if ((want & MATCH_CPU) && !set_has(m->cpu_set, f->cpu))
		return NO;
	if ((want & MATCH_NOT_CPU) && set_has(m->not_cpu_set, f->cpu))
		return NO;
	if ((want & MATCH_COMM) && !comm_in(f, m->comm))
		return NO;
	if ((want & MATCH_NOT_COMM) && comm_in(f, m->not_comm))
		return NO;
	if ((want & MATCH_KEY) && !key_in(f, m->key))
		return NO;
	if ((want & MATCH_NOT_KEY) && key_in(f, m->not_key))
		return NO;
	if (want & (MATCH_CGROUP | MATCH_NOT_CGROUP)) {
		bits = verdict(f, VERDICT_CGROUP, f->cgroup_id, &known);
		if (!known)
			unknown |= want & (MATCH_CGROUP | MATCH_NOT_CGROUP);
		else if ((want & MATCH_CGROUP) && !(bits & m->cgroups))
			return NO;
		else if ((want & MATCH_NOT_CGROUP) && (bits & m->not_cgroups))
			return NO;
	}
	if (want & (MATCH_DEVICE | MATCH_NOT_DEVICE)) {
		bits = verdict(f, VERDICT_DEVICE, f->dev, &known);
		if (!known)
			unknown |= want & (MATCH_DEVICE | MATCH_NOT_DEVICE);
		else if ((want & MATCH_DEVICE) && !(bits & m->devices))
			return NO;
		else if ((want & MATCH_NOT_DEVICE) && (bits & m->not_devices))
			return NO;
	}
	if (want & (MATCH_NAME | MATCH_NOT_NAME)) {
		bits = verdict(f, VERDICT_NAME, f->name, &known);
		if (!known)
			unknown |= want & (MATCH_NAME | MATCH_NOT_NAME);
		else if ((want & MATCH_NAME) && !(bits & m->names))
			return NO;
		else if ((want & MATCH_NOT_NAME) && (bits & m->not_names))
			return NO;
	}
	if (want & MATCH_FUNCTION) {
		bits = verdict(f, VERDICT_FUNCTION, f->function, &known);
		if (!known)
			unknown |= MATCH_FUNCTION;
		else if ((m->functions && !(bits & m->functions)) || (bits & m->not_functions))
			return NO;
	}
	if (!unknown)
		return YES;
	*undecided |= unknown;
	return UNKNOWN;
}

#endif
