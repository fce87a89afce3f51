/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Activities of programs that know nothing of us: hooks in them begin and end one in the
 * thread that runs, as a client would. The programs share one entry of the table of
 * processes, whose maps nobody else has. A thread has one token, the one with the number of
 * its slot: it works for one activity at a time.
 */
#ifndef TAILCAM_ACCOUNT_DECLARED_H
#define TAILCAM_ACCOUNT_DECLARED_H

#include "abi/declared.h"
#include "accounts/account.h"
#include "lib/bucket.h"

/* By index of the thread's slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 + ACTIVITY_MAX_THREADS);
	__type(key, u32);
	__type(value, struct declared_work);
} declared_works SEC(".maps");

/* By rule. A program that a hook runs stays on its CPU, but others may come in between: atomics. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DECLARED_RULES);
	__type(key, u32);
	__type(value, struct declared_totals);
} declared_totals SEC(".maps");

/* Slow ones, for the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 << 10);
} declared_ended SEC(".maps");

static __always_inline struct declared_totals *declared_account(u32 rule)
{
	return bpf_map_lookup_elem(&declared_totals, &rule);
}

/* Where the work of a thread is noted. */
static __always_inline struct declared_work *declared_work_of(struct account_thread *thread)
{
	u32 index = thread->index;

	return bpf_map_lookup_elem(&declared_works, &index);
}

/* ------------------------------------------------------ switch of tokens */

/*
 * Has the thread carry `to`, and returns since when. As in clients, what the old token has
 * cost up to then is exact: the kernel side credits at each switch-out what the thread
 * carries then, and says which switch of tokens it has seen (account_seen). cpu_ns: what it
 * has not credited.
 */
static __always_inline u64 declared_carry(struct account_thread *thread, struct activity_half *to, u64 *cpu_ns)
{
	volatile struct activity_thread_state *state = thread->state;
	u32 seq = *(volatile u32 *)&thread->shared->seq, slices;
	struct activity_half old = thread->shared->half[seq & 1];
	u64 now, start = old.since_ns, slice;
	bool known = state->tid == thread->tid;

	slices = state->slices;
	barrier();
	slice = known ? state->slice_ns : 0;
	now = bpf_ktime_get_ns();
	if (slice > start)
		start = slice;
	if (now < start) /* see slice_end */
		now = start;
	to->since_ns = now;
	thread->shared->half[(seq + 1) & 1] = *to;
	barrier();
	*(volatile u32 *)&thread->shared->seq = seq + 1;
	barrier();
	*cpu_ns = 0;
	if (state->slices == slices ||
	    (state->tid == thread->tid && state->seen_seq == seq + 1 && state->seen_slice == slices)) {
		if (now > start)
			*cpu_ns = now - start;
		return now;
	}
	/* It left its CPU after the clock was read: all up to its return is credited to the old one. */
	now = state->seen_seq == seq + 1 ? state->seen_ns : state->slice_ns;
	to->since_ns = now;
	thread->shared->half[(seq + 2) & 1] = *to;
	barrier();
	*(volatile u32 *)&thread->shared->seq = seq + 2;
	return now;
}

/* -------------------------------------------------------------------- end */

/*
 * Whether one that took so long is among the slowest hundredth: the bar rises by an eighth
 * at each that is, and sinks by an eight-hundredth at each that is not.
 */
static __always_inline bool declared_slow(struct declared_totals *totals, u64 wall)
{
	u64 bar = totals->bar_ns;

	if (wall < bar) {
		totals->bar_ns = bar - bar / 800;
		return false;
	}
	totals->bar_ns = bar + bar / 8 + 100;
	return true;
}

static __always_inline u64 declared_value(struct activity_account *account, u32 generation, u32 i)
{
	return account->generation == generation ? account->value[i] : 0;
}

static __always_inline void declared_report(struct declared_totals *totals, struct declared_work *work,
					    struct activity_token *token, struct activity_account *account,
					    u32 generation)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct declared_ended *ended = bpf_ringbuf_reserve(&declared_ended, sizeof(*ended), 0);

	if (!ended) {
		__sync_fetch_and_add(&totals->lost, 1);
		return;
	}
	ended->rule = work->rule;
	ended->pid = current->tgid;
	ended->tid = current->pid;
	ended->uid = (u32)bpf_get_current_uid_gid();
	ended->cgroup_id = bpf_get_current_cgroup_id();
	ended->begin_ns = token->begin_ns;
	ended->end_ns = token->end_ns;
	bpf_get_current_comm(ended->comm, sizeof(ended->comm));
	__builtin_memcpy(ended->text, work->text, sizeof(ended->text));
	for (u32 i = 0; i < ACTIVITY_WORDS; i++)
		ended->value[i] = declared_value(account, generation, i);
	ended->value[ACTIVITY_CPU_NS] += token->cpu_ns;
	bpf_ringbuf_submit(ended, 0);
}

static __always_inline void declared_sum(struct declared_totals *totals, struct activity_token *token,
					 struct activity_account *account, u32 generation, u64 wall)
{
	u32 bucket = histogram_bucket_of(wall);
	u64 v;

	__sync_fetch_and_add(&totals->count, 1);
	__sync_fetch_and_add(&totals->wall_ns, wall);
	if (wall > totals->max_ns)
		totals->max_ns = wall;
	if (bucket < HISTOGRAM_BUCKETS)
		__sync_fetch_and_add(&totals->bucket[bucket], 1);
	for (u32 i = 0; i < ACTIVITY_VALUES; i++) {
		v = declared_value(account, generation, i);
		if (v)
			__sync_fetch_and_add(&totals->value[i], v);
	}
	__sync_fetch_and_add(&totals->value[ACTIVITY_CPU_NS], token->cpu_ns);
}

/* Ends what the thread works for. whole: its end was seen. */
static __always_inline void declared_end(struct account_thread *thread, bool whole)
{
	struct activity_half half, none = {};
	struct activity_account *account;
	struct declared_totals *totals;
	struct activity_token *token;
	struct declared_work *work;
	u64 cpu;

	account_carried(thread->shared, &half);
	token = half.token ? account_token(&thread->process, half.token) : NULL;
	account = token ? account_element(thread->process.accounts, half.token) : NULL;
	work = declared_work_of(thread);
	if (!account || !work)
		return;
	token->end_ns = declared_carry(thread, &none, &cpu);
	token->cpu_ns += cpu;
	token->wall_ns += token->end_ns - half.since_ns;
	token->generation = half.generation + 1;
	barrier();
	totals = declared_account(work->rule);
	if (!totals)
		return;
	if (!whole) {
		__sync_fetch_and_add(&totals->replaced, 1);
		return;
	}
	declared_sum(totals, token, account, half.generation, token->wall_ns);
	if (declared_slow(totals, token->wall_ns))
		declared_report(totals, work, token, account, half.generation);
}

#endif
