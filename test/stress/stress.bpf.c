//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The pending table alone, under everything that may happen to it at once:
 * system call programs that other tasks preempt, timer interrupts in the middle
 * of them, and the scheduler's own hook. Every entry is accounted for.
 */
#include "lib/kernel.h"

#ifdef BROKEN
/* A claim that two may win: to show that the account notices. */
#define __sync_val_compare_and_swap(index, old, new) ((*(volatile typeof(*(index)) *)(index) = (new)), (old))
#endif
#include "lib/pending.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile u32 mask;
const volatile u32 first_interrupt; /* number of the first worker that is an interrupt */
const volatile u32 first_switch;    /* … that is the scheduler's hook */

ARRAY_MAP(stress_keys, struct bucket);
ARRAY_MAP(stress_values, u64);

/* What a worker has done; no other writes it. */
struct account {
	u64 stored;   /* entries that have a slot */
	u64 lost;     /* entries whose window was full */
	u64 replaced; /* entries that found an older one of their key */
	u64 matched;  /* exits that found their entry */
	u64 missed;   /* exits that found none */
	u64 wrong;    /* exits that found the value of another key */
	u64 runs;     /* of the interrupt */
	u64 _pad;
};

ARRAY_MAP(accounts, struct account);

/* Argument of stress: n keys from key on, entered or left by a worker. */
struct work {
	u64 key;
	u32 n;
	u32 worker;
	u32 leave;
	u32 _pad;
};

struct work *unused_work __attribute__((unused));
struct account *unused_account __attribute__((unused));

static __always_inline void enter(struct account *a, u64 key)
{
	bool fresh;
	int index = pending_claim(&stress_keys, mask, key, HASHED, &fresh);
	u32 i = index;
	u64 *v;

	if (index < 0) {
		a->lost++;
		return;
	}
	v = bpf_map_lookup_elem(&stress_values, &i);
	if (!v)
		return;
	if (!fresh && *v)
		a->replaced++;
	*(volatile u64 *)v = key;
	a->stored++;
}

static __always_inline void leave(struct account *a, u64 key)
{
	int index = pending_find(&stress_keys, mask, key, HASHED);
	u32 i = index;
	u64 *v;

	if (index < 0) {
		a->missed++;
		return;
	}
	v = bpf_map_lookup_elem(&stress_values, &i);
	if (!v)
		return;
	if (*v == key)
		a->matched++;
	else
		a->wrong++;
	*(volatile u64 *)v = 0;
	pending_release(&stress_keys, index);
}

static long step(u32 i, struct work *w)
{
	struct account *a = bpf_map_lookup_elem(&accounts, &w->worker);

	if (!a)
		return 1;
	if (w->leave)
		leave(a, w->key + i);
	else
		enter(a, w->key + i);
	return 0;
}

SEC("syscall")
int stress(struct work *ctx)
{
	struct work w = {.key = ctx->key, .n = ctx->n, .worker = ctx->worker, .leave = ctx->leave};

	bpf_loop(w.n, step, &w, 0);
	return 0;
}

/* A timer interrupt: keys of its own, entered at one and left at the next. */
SEC("perf_event")
int interrupt(void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct work w = {.key = 1ULL << 40 | (u64)cpu << 8, .worker = first_interrupt + cpu};
	struct account *a = bpf_map_lookup_elem(&accounts, &w.worker);

	if (!a)
		return 0;
	w.leave = a->runs++ & 1;
	bpf_loop(8, step, &w, 0);
	return 0;
}

/* The scheduler: a task's key from its leaving a CPU until it has one again. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 worker = first_switch + bpf_get_smp_processor_id();
	struct account *a = bpf_map_lookup_elem(&accounts, &worker);

	if (!a)
		return 0;
	if (next->pid)
		leave(a, 1ULL << 41 | next->pid);
	if (prev->pid)
		enter(a, 1ULL << 41 | prev->pid);
	return 0;
}
