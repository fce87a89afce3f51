/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whose spans are counted together, and how many there are: exactly, as a
 * quota that two users share is a quota that one can take from the other.
 *
 * An owner is found like a key of a pending table. Its slot is claimed with
 * its first span and free again with its last. A count is only valid for who
 * has added to it and still found the key there: the last one out first makes
 * the count negative, so that nobody gets in while the key is taken away.
 */
#ifndef TAILCAM_TRACKER_SPAN_OWNER_H
#define TAILCAM_TRACKER_SPAN_OWNER_H

#include "lib/pending.h"

const volatile u64 span_seed;	    /* a secret: nobody can tell where a key of another user stands */
const volatile u32 span_owner_mask; /* buckets of owners, less one: at least one */

/* Owners of spans, and how many each has; written here. Sized by the daemon: twice the slots of spans. */
ARRAY_MAP(span_owner_keys, struct bucket);
ARRAY_MAP(span_owner_counts, u64);

#define OWNER_TRIES 4
#define OWNER_DROPPED (1ULL << 62) /* the sign of a count whose owner is taken away, with room for those who try */
#define OWNER_NAMESPACE (1ULL << 32)

struct span_owner {
	u64 key;
	u64 count; /* with the one that has been added */
	u32 index;
	u32 _pad;
};

/*
 * Whom a task's spans are charged to. In a user namespace a user may be any of
 * 65,536, so it is whoever made the outermost one below the machine's own. If
 * root did, it is a container: each has a quota of its own.
 */
static __always_inline u64 owner_of(struct task_struct *task)
{
	struct user_namespace *ns = task->cred->user_ns;
	u32 owner;

	if (!ns->level)
		return (u64)task->cred->uid.val + 1;
	for (int i = 0; i < 32; i++) { /* they nest no deeper (kernel/user_namespace.c) */
		if (ns->level <= 1)
			break;
		ns = ns->parent;
	}
	owner = ns->owner.val;
	return owner ? (u64)owner + 1 : OWNER_NAMESPACE | ns->ns.inum;
}

static __always_inline u64 *owner_counter(u32 index)
{
	return bpf_map_lookup_elem(&span_owner_counts, &index);
}

static __always_inline u64 owner_count(u32 index)
{
	u64 *count = owner_counter(index);

	return count ? *(volatile u64 *)count : 0;
}

static __always_inline u64 owner_key_at(u32 index)
{
	u32 b = index >> 3;
	volatile struct bucket *bucket = bpf_map_lookup_elem(&span_owner_keys, &b);

	return bucket ? bucket->key[index & 7] : 0;
}

/* One span less. With the last one the owner's slot is free. */
__noinline int owner_drop(u32 index)
{
	u64 *count = owner_counter(index);

	if (!count || __sync_fetch_and_add(count, -1) != 1)
		return 0;
	if (__sync_val_compare_and_swap(count, 0, -OWNER_DROPPED))
		return 0; /* another one came, or is leaving */
	pending_release(&span_owner_keys, index);
	__sync_fetch_and_add(count, OWNER_DROPPED);
	return 0;
}

/* How many slots of bucket number b hold key. */
static __always_inline u32 owner_slots(u32 b, u64 key)
{
	volatile struct bucket *bucket = bpf_map_lookup_elem(&span_owner_keys, &b);
	u32 n = 0;

	if (!bucket)
		return 0;
#pragma unroll
	for (int i = 0; i < 8; i++) {
		u64 other = bucket->key[i] ^ key, minus = -other;

		barrier_var(minus); /* without a branch: see span_any */
		n += ((other | minus) >> 63) ^ 1;
	}
	return n;
}

static long owner_step(u32 i, struct span_owner **w)
{
	struct span_owner *o = *w;
	u32 b = home(o->key ^ span_seed, span_owner_mask);
	int index = bucket_find(&span_owner_keys, b, o->key);
	u64 *count, n;
	bool mine;

	if (index < 0)
		index = bucket_find(&span_owner_keys, b ^ 1, o->key);
	mine = index < 0;
	if (mine)
		index = bucket_claim(&span_owner_keys, b, o->key);
	if (index < 0)
		index = bucket_claim(&span_owner_keys, b ^ 1, o->key);
	if (index < 0)
		return 1; /* full */
	count = owner_counter(index);
	if (!count)
		return 1;
	n = __sync_fetch_and_add(count, 1);
	if ((s64)n < 0 || owner_key_at(index) != o->key) { /* it is being taken away, or was */
		owner_drop(index);
		return 0;
	}
	/* Two CPUs may have claimed a slot each: at least one of them sees that, and tries again. */
	if (mine && owner_slots(b, o->key) + owner_slots(b ^ 1, o->key) > 1) {
		owner_drop(index);
		return 0;
	}
	o->index = index;
	o->count = n + 1;
	return 1;
}

/* One span more of the owner with the key of o; false: there is no room to count it. */
static __always_inline bool owner_add(struct span_owner *o)
{
	struct span_owner *w = o;

	o->count = 0;
	bpf_loop(OWNER_TRIES, owner_step, &w, 0);
	return o->count;
}

#endif
