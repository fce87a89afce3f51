/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The span tracker: a program says when a piece of its work begins and ends, by
 * a system call that fails at once (abi/span.h). A key belongs to the user and
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
#include "span_owner.h"

#define SPAN_PATH 4 /* beside SPAN_BEGIN, SPAN_END: its key stands in a path */
#define SPAN_DOUBLES 3

/* What span_claim did; below: the number of an owner. */
#define SPAN_NO_ROOM 0xffffffffU
#define SPAN_CLAIMED 0xfffffffeU
#define SPAN_OWN 0xfffffffdU	/* another span of the owner made way */
#define SPAN_OTHERS 0xfffffffcU /* one of an owner that has more did */

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
	struct span_owner owner;
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

/* Frees a place that the caller owns. */
static __always_inline void span_release(struct span_slot *slot, u32 at)
{
	u32 owner = slot->owner;

	pending_release(&span_keys, at);
	owner_leave(owner);
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
		span_release(slot, at);
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

struct span_victim {
	u64 start;
	u64 most;  /* places that its owner has */
	u64 count; /* places of the owner for whom it makes way */
	u32 b;
	u32 at;
	u32 mine; /* that owner */
	u32 own;  /* only one of its own will do */
};

/* The oldest span of the owner that has most in the window. */
static long span_victim_step(u32 i, struct span_victim *v)
{
	u32 at = (i < 8 ? v->b : v->b ^ 1) * 8 + (i & 7);
	struct span_slot *slot = span_slot_at(at);
	u64 start, count;
	u32 owner;

	if (!slot)
		return 0;
	start = *(volatile u64 *)&slot->start_ns;
	owner = *(volatile u32 *)&slot->owner;
	if (!start || (v->own && owner != v->mine))
		return 0;
	count = owner_count(owner);
	if (owner != v->mine && count <= v->count)
		return 0;
	if (count < v->most || (count == v->most && start >= v->start))
		return 0;
	v->most = count;
	v->start = start;
	v->at = at;
	return 0;
}

/*
 * Makes another span make way for that of c: the oldest of whoever has most in
 * the window, as long as that is more than c's owner has. own: only its own.
 * Returns whose it was, SPAN_NO_ROOM: none.
 */
__noinline u32 span_evict(struct span_call *c, u32 b, u32 own)
{
	struct span_victim v = {.start = NEVER, .b = b, .own = own};
	struct span_slot *slot;
	struct bucket *bucket;
	u32 at, owner;

	if (!c)
		return SPAN_NO_ROOM;
	v.count = c->owner.count;
	v.mine = c->owner.at;
	bpf_loop(16, span_victim_step, &v, 0);
	if ((s64)v.start == (s64)NEVER)
		return SPAN_NO_ROOM;
	at = v.at;
	slot = span_slot_at(at);
	if (!slot || __sync_val_compare_and_swap(&slot->start_ns, v.start, 0) != v.start)
		return SPAN_NO_ROOM;
	owner = slot->owner;
	b = at >> 3;
	bucket = bpf_map_lookup_elem(&span_keys, &b);
	if (!bucket)
		return SPAN_NO_ROOM;
	__sync_lock_test_and_set(&bucket->key[at & 7], c->key);
	c->at = at;
	owner_leave(owner);
	return owner;
}

/*
 * Claims a place for the key of c. An owner's spans may fill the table up to
 * its share; where there is no room, one of the owner that has most makes way,
 * and never one of an owner that has fewer than c's.
 */
__noinline u32 span_claim(struct span_call *c)
{
	int at = NOWHERE;
	u32 b, from;
	bool full;

	if (!c || !owner_enter(&c->owner))
		return SPAN_NO_ROOM;
	b = home(c->key, span_mask);
	full = c->owner.count > span_share;
	if (!full) {
		at = bucket_claim(&span_keys, b, c->key);
		if (at < 0)
			at = bucket_claim(&span_keys, b ^ 1, c->key);
	}
	if (at >= 0) {
		c->at = at;
		return SPAN_CLAIMED;
	}
	from = span_evict(c, b, full);
	if (from == SPAN_NO_ROOM) /* another CPU may have been faster */
		from = span_evict(c, b, full);
	if (from == SPAN_NO_ROOM)
		owner_leave(c->owner.at);
	else
		from = from == c->owner.at ? SPAN_OWN : SPAN_OTHERS;
	return from;
}

/* --------------------------------------------------------------- both ends */

static __always_inline void span_begin(struct scratch *s, struct task_struct *current, struct span_call *c, u64 now,
				       u32 cpu, struct cpu_state *me)
{
	struct span_slot *slot;
	u32 claimed;

	if (span_take(&s->facts, c)) {
		if (me)
			__sync_fetch_and_add(&me->replaced[TRACK_SPAN], 1 + c->doubles);
	} else {
		c->owner.key = owner_of(current);
		claimed = span_claim(c);
		if (me && claimed == SPAN_NO_ROOM)
			__sync_fetch_and_add(&me->table_full[TRACK_SPAN], 1);
		if (me && claimed == SPAN_OWN)
			me->span.forgotten++;
		if (me && claimed == SPAN_OTHERS)
			me->span.outvied++;
		if (claimed == SPAN_NO_ROOM)
			return;
		slot = span_slot_at(c->at);
		if (!slot)
			return;
		slot->owner = c->owner.at;
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
		span_release(slot, c->at);
		return;
	}
	fired = span_fired(slot, start);
	s = outlier_begin(TRACK_SPAN, cpu, start, now);
	if (!s)
		return;
	s->timed_out = fired;
	s->out.entry_cpu = slot->cpu;
	span_fill((struct span_extra *)s->out.extra, slot);
	span_release(slot, c->at);
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

/* Nobody has ended the span that began at start for too long: true: its place is free now. */
static __always_inline bool span_expire(u32 at, u64 start, struct cpu_state *me)
{
	struct span_slot *slot = span_slot_at(at);

	if (!slot || !start || __sync_val_compare_and_swap(&slot->start_ns, start, 0) != start)
		return false;
	span_release(slot, at);
	if (me)
		__sync_fetch_and_add(&me->span.expired, 1);
	return true;
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
