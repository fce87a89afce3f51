//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * One job on several tables: from the wake-up of a task to its switch-in. Each
 * pair of programs is the same but for the table; one pair is loaded at a time.
 */
#include "lib/pending.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile u32 mask; /* buckets of the pending table, less one */

/* What a wait comes to, so that no compiler leaves the work out. */
struct sum {
	u64 waits;
	u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sum);
} sums SEC(".maps");

ARRAY_MAP(bench_keys, struct bucket);
ARRAY_MAP(bench_values, u64);

#define HASH_MAP(map, kind, flags)        \
	struct {                          \
		__uint(type, kind);       \
		__uint(map_flags, flags); \
		__uint(max_entries, 1);   \
		__type(key, u64);         \
		__type(value, u64);       \
	} map SEC(".maps")

HASH_MAP(hash_pre, BPF_MAP_TYPE_HASH, 0);
HASH_MAP(hash_dyn, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC);
HASH_MAP(hash_lru, BPF_MAP_TYPE_LRU_HASH, 0);

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} storage SEC(".maps");

static __always_inline void done(u32 cpu, u64 ns)
{
	struct sum *s = bpf_map_lookup_elem(&sums, &cpu);

	if (!s)
		return;
	s->waits++;
	s->ns += ns;
}

/* ------------------------------------------------------------- the tables */

static __always_inline u64 *value_at(int index)
{
	u32 i = index;

	return bpf_map_lookup_elem(&bench_values, &i);
}

/* Ours, for keys that come and go: claimed at the entry, released at the exit. */
static __always_inline void pending_set(struct task_struct *p, u64 now)
{
	bool fresh;
	int index = pending_claim(&bench_keys, mask, (u32)p->pid, HASHED, &fresh);
	u64 *v = index < 0 ? NULL : value_at(index);

	if (v)
		*v = now;
}

static __always_inline u64 pending_end(struct task_struct *p)
{
	int index = pending_find(&bench_keys, mask, (u32)p->pid, HASHED);
	u64 *v = index < 0 ? NULL : value_at(index);
	u64 then;

	if (!v)
		return 0;
	then = *v;
	*v = 0;
	pending_release(&bench_keys, index);
	return then;
}

/* Ours, as the sched trackers have it: a task keeps its slot while it lives. */
static __always_inline void kept_set(struct task_struct *p, u64 now)
{
	bool fresh;
	int index = pending_claim(&bench_keys, mask, (u32)p->pid, DIRECT, &fresh);
	u64 *v = index < 0 ? NULL : value_at(index);

	if (v)
		*v = now;
}

static __always_inline u64 kept_end(struct task_struct *p)
{
	int index = pending_find(&bench_keys, mask, (u32)p->pid, DIRECT);
	u64 *v = index < 0 ? NULL : value_at(index);
	u64 then;

	if (!v)
		return 0;
	then = *v;
	*v = 0;
	return then;
}

#define HASH_TABLE(name)                                                       \
	static __always_inline void name##_set(struct task_struct *p, u64 now) \
	{                                                                      \
		u64 key = (u32)p->pid;                                         \
                                                                               \
		bpf_map_update_elem(&name, &key, &now, BPF_ANY);               \
	}                                                                      \
                                                                               \
	static __always_inline u64 name##_end(struct task_struct *p)           \
	{                                                                      \
		u64 key = (u32)p->pid;                                         \
		u64 *v = bpf_map_lookup_elem(&name, &key);                     \
		u64 then;                                                      \
                                                                               \
		if (!v)                                                        \
			return 0;                                              \
		then = *v;                                                     \
		bpf_map_delete_elem(&name, &key);                              \
		return then;                                                   \
	}

HASH_TABLE(hash_pre)
HASH_TABLE(hash_dyn)
HASH_TABLE(hash_lru)

static __always_inline void storage_set(struct task_struct *p, u64 now)
{
	u64 *v = bpf_task_storage_get(&storage, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (v)
		*v = now;
}

static __always_inline u64 storage_end(struct task_struct *p)
{
	u64 *v = bpf_task_storage_get(&storage, p, 0, 0);
	u64 then;

	if (!v)
		return 0;
	then = *v;
	*v = 0;
	return then;
}

/* Neither reads nor writes: what the hooks, the clock and the rest cost. */
static __always_inline void empty_set(struct task_struct *p, u64 now)
{
	barrier_var(now);
}

static __always_inline u64 empty_end(struct task_struct *p)
{
	return 0;
}

/* ------------------------------------------------------------ the programs */

#define TRACK(name)                                                                                   \
	SEC("tp_btf/sched_waking")                                                                    \
	int BPF_PROG(name##_waking, struct task_struct *p)                                            \
	{                                                                                             \
		name##_set(p, bpf_ktime_get_ns());                                                    \
		return 0;                                                                             \
	}                                                                                             \
                                                                                                      \
	SEC("tp_btf/sched_switch")                                                                    \
	int BPF_PROG(name##_switch, bool preempt, struct task_struct *prev, struct task_struct *next) \
	{                                                                                             \
		u64 now = bpf_ktime_get_ns();                                                         \
		u64 then = next->pid ? name##_end(next) : 0;                                          \
                                                                                                      \
		if (then)                                                                             \
			done(bpf_get_smp_processor_id(), now - then);                                 \
		return 0;                                                                             \
	}

TRACK(empty)
TRACK(pending)
TRACK(kept)
TRACK(hash_pre)
TRACK(hash_dyn)
TRACK(hash_lru)
TRACK(storage)
