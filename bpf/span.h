/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The span tracker: a program says when a piece of its work begins and ends, by
 * a system call that fails at once (span_abi.h). A key belongs to the user and
 * the pid namespace of its caller; any thread or process of both may end it.
 *
 * Two CPUs that begin one key at once may claim a place each. That is the same
 * as a begin after a begin, and settled like it: whoever takes a span takes all
 * of its key, and reports the first.
 */
#ifndef TAILCAM_SPAN_H
#define TAILCAM_SPAN_H

#include "histogram.h"
#include "outlier.h"
#include "pending.h"

#define SPAN_PATH 4 /* beside SPAN_BEGIN, SPAN_END: its key stands in a path */
#define SPAN_DOUBLES 3

/* "/dev/nul", "l/span+/", "l/span-/" */
#define SPAN_PATH_0 0x6c756e2f7665642fULL
#define SPAN_PATH_BEGIN 0x2f2b6e6170732f6cULL
#define SPAN_PATH_END 0x2f2d6e6170732f6cULL

struct pt_regs___args {
	unsigned long di, si, dx;
} CORE;

struct span_args {
	u64 dir, text, mode;
};

struct span_call {
	u64 key;   /* that it has in the pending table */
	u64 start; /* of what was taken */
	u32 uid, ns;
	u32 at;
	u32 doubles; /* other places of the key that were taken, and freed */
};

static __always_inline void span_read_args(void *regs, struct span_args *a)
{
	if (bpf_core_field_exists(((struct pt_regs___args *)0)->di)) {
		struct pt_regs___args *r = regs;

		a->dir = r->di;
		a->text = r->si;
		a->mode = r->dx;
	} else {
		a->dir = BPF_CORE_READ((struct pt_regs___arm64 *)regs, regs[0]);
		a->text = BPF_CORE_READ((struct pt_regs___arm64 *)regs, regs[1]);
		a->mode = BPF_CORE_READ((struct pt_regs___arm64 *)regs, regs[2]);
	}
}

/* What a call of faccessat2 says: SPAN_BEGIN, SPAN_END, | SPAN_PATH; 0: nothing to us. */
static __always_inline u32 span_op(void *regs)
{
	struct span_args a;
	u64 path[2];

	span_read_args(regs, &a);
	if (((u32)a.mode & 0xffff0000) == SPAN_MODE) {
		u32 op = a.mode & 0xffff;

		return op == SPAN_BEGIN || op == SPAN_END ? op : 0;
	}
	if ((s32)a.dir != -100 || bpf_probe_read_user(path, sizeof(path), (void *)a.text)) /* AT_FDCWD */
		return 0;
	if (path[0] != SPAN_PATH_0)
		return 0;
	if (path[1] == SPAN_PATH_BEGIN)
		return SPAN_BEGIN | SPAN_PATH;
	return path[1] == SPAN_PATH_END ? SPAN_END | SPAN_PATH : 0;
}

/* ------------------------------------------------------- the pending table */

static __always_inline struct span_slot *span_slot_at(u32 at)
{
	return bpf_map_lookup_elem(&span_slots, &at);
}

static __always_inline u64 span_hash(const u64 *text, u32 uid, u32 ns)
{
	u64 h = (span_seed ^ ((u64)ns << 32 | uid)) * 0x9e3779b97f4a7c15ULL;

#pragma unroll
	for (int i = 0; i < SPAN_KEY_LEN / 8; i++) {
		h ^= h >> 32;
		h = (h ^ text[i]) * 0xff51afd7ed558ccdULL;
	}
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h ? h : 1;
}

static __always_inline void span_user(u32 uid, s64 more)
{
	__sync_fetch_and_add(&span_users[uid & (SPAN_USERS - 1)], more);
}

/* Frees a place that the caller owns. */
static __always_inline void span_release(u32 at, u32 uid)
{
	span_user(uid, -1);
	pending_release(&span_keys, at);
}

/* 1 if x is not 0, without a branch, of which the verifier would follow both ways sixteen times. */
static __always_inline u32 span_any(u64 x)
{
	u64 minus = -x;

	barrier_var(minus); /* or the compiler sees what it is, and branches */
	return (x | minus) >> 63;
}

/* Bits of the places of bucket number b that hold key. */
static __always_inline u32 span_bits(u32 b, u64 key)
{
	volatile struct bucket *bucket = bpf_map_lookup_elem(&span_keys, &b);
	u32 bits = 0;

	if (!bucket)
		return 0;
#pragma unroll
	for (int i = 0; i < 8; i++)
		bits |= (span_any(bucket->key[i] ^ key) ^ 1) << i;
	return bits;
}

static __always_inline bool span_is(struct span_slot *slot, const u64 *text, u32 uid, u32 ns)
{
	u64 other = (slot->uid ^ uid) | (slot->ns ^ ns);

#pragma unroll
	for (int i = 0; i < SPAN_KEY_LEN / 8; i++)
		other |= slot->key[i] ^ text[i];
	return !other;
}

struct span_walk {
	struct facts *f;
	struct span_call *c;
	u32 b;
	u32 bits; /* places still to look at */
	u32 found;
	u32 _pad;
};

static long span_take_step(u32 n, struct span_walk *w)
{
	struct span_call *c = w->c;
	u32 low = w->bits & -w->bits;
	u32 i = span_any(low & 0xaaaa) | span_any(low & 0xcccc) << 1 | span_any(low & 0xf0f0) << 2;
	u32 at = (w->b ^ span_any(low & 0xff00)) * 8 + i;
	struct span_slot *slot;
	long go_on = 0, stop = 1;
	u64 start;

	barrier_var(go_on); /* see globs_step */
	barrier_var(stop);
	if (!low)
		return stop;
	w->bits ^= low;
	slot = span_slot_at(at);
	if (!slot)
		return go_on;
	start = *(volatile u64 *)&slot->start_ns;
	if (!start || !span_is(slot, w->f->key, c->uid, c->ns))
		return go_on;
	if (__sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return go_on; /* another CPU was faster */
	if (w->found) {
		c->doubles++;
		span_release(at, c->uid);
		return go_on;
	}
	w->found = 1;
	c->at = at;
	c->start = start;
	return go_on;
}

/*
 * Takes the span with the key of c and the text of f: its place is at c->at,
 * and the caller's. False: there is none. The start is read before the rest is
 * compared, and starts do not repeat, so that the swap fails if the place was
 * given to another span in between.
 */
static __always_inline bool span_take(struct facts *f, struct span_call *c)
{
	struct span_walk w = {.f = f, .c = c, .b = home(c->key, span_mask)};

	c->doubles = 0;
	w.bits = span_bits(w.b, c->key) | span_bits(w.b ^ 1, c->key) << 8;
	if (!w.bits)
		return false;
	bpf_loop(SPAN_DOUBLES, span_take_step, &w, 0);
	return w.found;
}

struct span_oldest {
	u64 start;
	u32 b;
	u32 at;
	u32 uid;
	u32 _pad;
};

static long span_oldest_step(u32 i, struct span_oldest *o)
{
	u32 at = (i < 8 ? o->b : o->b ^ 1) * 8 + (i & 7);
	struct span_slot *slot = span_slot_at(at);
	u64 start;

	if (!slot)
		return 0;
	start = *(volatile u64 *)&slot->start_ns;
	if (start && slot->uid == o->uid && start < o->start) {
		o->start = start;
		o->at = at;
	}
	return 0;
}

/* Makes the oldest span of this user in the window make way. 0: there is none. */
static __always_inline bool span_evict(struct span_call *c, u32 b)
{
	struct span_oldest o = {.start = NEVER, .b = b, .uid = c->uid};
	struct span_slot *slot;
	struct bucket *bucket;
	u32 at;

	bpf_loop(16, span_oldest_step, &o, 0);
	if ((s64)o.start == (s64)NEVER)
		return false;
	at = o.at;
	slot = span_slot_at(at);
	if (!slot || __sync_val_compare_and_swap(&slot->start_ns, o.start, 0) != o.start)
		return false;
	b = at >> 3;
	bucket = bpf_map_lookup_elem(&span_keys, &b);
	if (!bucket)
		return false;
	__sync_lock_test_and_set(&bucket->key[at & 7], c->key);
	c->at = at;
	return true;
}

/* Claims a place for the key of c: 1, or 2 if another span made way for it. 0: there is no room. */
__noinline int span_claim(struct span_call *c)
{
	int at = NOWHERE;
	u32 b;

	if (!c)
		return 0;
	b = home(c->key, span_mask);
	if (span_users[c->uid & (SPAN_USERS - 1)] < span_share) {
		at = bucket_claim(&span_keys, b, c->key);
		if (at < 0)
			at = bucket_claim(&span_keys, b ^ 1, c->key);
	}
	if (at < 0)
		return span_evict(c, b) ? 2 : 0;
	span_user(c->uid, 1);
	c->at = at;
	return 1;
}

/* --------------------------------------------------------------- both ends */

static __always_inline void span_begin(struct scratch *s, struct task_struct *current, struct span_call *c, u64 now,
				       u32 cpu, struct cpu_state *me)
{
	struct span_slot *slot;
	int claimed;

	if (span_take(&s->facts, c)) {
		if (me)
			__sync_fetch_and_add(&me->replaced[TRACK_SPAN], 1 + c->doubles);
	} else {
		claimed = span_claim(c);
		if (me && claimed == 0)
			__sync_fetch_and_add(&me->table_full[TRACK_SPAN], 1);
		if (me && claimed == 2)
			me->span.forgotten++;
		if (!claimed)
			return;
	}
	slot = span_slot_at(c->at);
	if (!slot)
		return;
	__builtin_memcpy(slot->key, s->facts.key, SPAN_KEY_LEN);
	slot->uid = c->uid;
	slot->ns = c->ns;
	slot->task = task_number(current);
	slot->tid = current->pid;
	slot->pid = current->tgid;
	slot->cpu = cpu;
	slot->cgroup_id = current->cgroups->dfl_cgrp->kn->id;
	COPY_COMM(slot->comm, current);
	__sync_lock_test_and_set(&slot->start_ns, now);
}

static __always_inline void span_fill(struct span_extra *x, struct span_slot *slot)
{
	__builtin_memcpy(x->key, slot->key, SPAN_KEY_LEN);
	__builtin_memcpy(x->comm, slot->comm, TASK_COMM_LEN);
	x->tid = slot->tid;
	x->pid = slot->pid;
}

/* Which timeouts have fired for the span that began at start and was taken (timeout.h). */
static __always_inline u64 span_fired(struct span_slot *slot, u64 start)
{
	u64 fired;

	if (!timeouts)
		return 0;
	fired = __sync_lock_test_and_set(&slot->deadline.fired, 0);
	return *(volatile u64 *)&slot->deadline.for_ns == start ? fired : 0;
}

static __always_inline void span_end(void *ctx, struct scratch *s, struct task_struct *current, struct span_call *c,
				     u64 now, u32 cpu, struct cpu_state *me)
{
	struct span_slot *slot;
	u64 fired, start;
	long size;

	if (!span_take(&s->facts, c)) {
		if (me)
			me->span.unknown++;
		return;
	}
	start = c->start;
	slot = span_slot_at(c->at);
	if (!slot)
		return;
	if (me) {
		me->seen[TRACK_SPAN]++;
		if (c->doubles)
			__sync_fetch_and_add(&me->replaced[TRACK_SPAN], c->doubles);
	}
	histogram_span(current, cpu, now, now - start);
	if ((s64)(now - start) < (s64)floor_span) {
		span_release(c->at, c->uid);
		return;
	}
	fired = span_fired(slot, start);
	s = outlier_begin(TRACK_SPAN, cpu, start, now);
	if (!s)
		return;
	s->timed_out = fired;
	s->out.entry_cpu = slot->cpu;
	span_fill((struct span_extra *)s->out.extra, slot);
	span_release(c->at, c->uid);
	outlier_task(s, current);
	if (s->facts.pid == self_pid || !evaluate(s, TRACK_SPAN, now - start))
		return;
	if (s->wants_kernel) {
		size = bpf_get_stack(ctx, s->out.kernel, sizeof(s->out.kernel), 0);
		s->out.kernel_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	if (s->wants_user) {
		size = bpf_get_stack(ctx, s->out.user, sizeof(s->out.user), BPF_F_USER_STACK);
		s->out.user_frames = size > 0 ? size / sizeof(u64) : 0;
	}
	outlier_emit(s);
}

/* current says op: see span_op. */
static __always_inline void span_event(void *ctx, void *regs, struct task_struct *current, u32 op, u64 now, u32 cpu,
				       struct cpu_state *me)
{
	u32 at = cpu * SCRATCHES + TRACK_SPAN;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &at);
	struct span_call c = {};
	struct span_args a;
	long size;

	if (!s || (s64)floor_span == (s64)NEVER || task_compat(current))
		return;
	span_read_args(regs, &a);
	if (op & SPAN_PATH)
		a.text += SPAN_PATH_LEN;
	__builtin_memset(s->facts.key, 0, sizeof(s->facts.key));
	size = bpf_probe_read_user_str(s->facts.key, SPAN_KEY_LEN + 1, (void *)a.text);
	if (size < 2 || size > SPAN_KEY_LEN) { /* with its NUL */
		if (me)
			me->span.bad_key++;
		return;
	}
	c.uid = current->cred->uid.val;
	c.ns = current->nsproxy->pid_ns_for_children->ns.inum;
	c.key = span_hash(s->facts.key, c.uid, c.ns);
	if ((op & 3) == SPAN_BEGIN)
		span_begin(s, current, &c, now, cpu, me);
	else
		span_end(ctx, s, current, &c, now, cpu, me);
}

#endif
