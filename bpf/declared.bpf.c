//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Hooks in programs that begin and end activities. The daemon loads the program once for
 * each place, with `hook` filled in and the maps of activity.bpf.c.
 */
#include "accounts/declared.h"
#include "lib/stack.h"
#include "trackers/pair_fetch.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct declared_hook hook;

static __always_inline void declared_count(u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/* Gives current a slot; false: none is free. Only the thread itself looks for one. */
static __always_inline bool declared_claim(struct task_struct *current, struct account_thread *thread)
{
	struct account_process *process = &thread->process;
	struct activity_thread *shared;
	u32 tid = current->pid, index;

	for (u32 i = 0; i < ACTIVITY_THREAD_WINDOW; i++) {
		index = account_slot(process->is, tid, i);
		shared = account_element(process->shared, index);
		if (!shared)
			return false;
		if (shared->tid || __sync_val_compare_and_swap(&shared->tid, 0, tid))
			continue;
		thread->state = account_element(process->accounts, index);
		thread->shared = shared;
		thread->tid = tid;
		thread->index = index;
		return thread->state;
	}
	return false;
}

/* Whether current is of a declared program, or becomes one; flags: of bpf_task_storage_get. */
static __always_inline bool declared_process(struct task_struct *current, struct account_process *process, u64 flags)
{
	struct activity_owner *owner, ours;

	ours.process = hook.owner.process;
	ours.serial = hook.owner.serial;
	owner = bpf_task_storage_get(&activity_owners, current->group_leader, flags ? &ours : NULL, flags);
	if (!owner)
		return false;
	/* Of a client: the process has tokens of its own. */
	if (owner->process != ours.process || owner->serial != ours.serial)
		return false;
	return account_process_find(ours.process, ours.serial, process);
}

/* Finds the slot of current, or makes one; false: there is none for it. */
static __always_inline bool declared_thread(struct task_struct *current, struct account_thread *thread)
{
	if (!declared_process(current, &thread->process, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return false;
	return account_thread_in(current, thread) || declared_claim(current, thread);
}

static __always_inline void declared_text(void *ctx, struct activity_token *token, struct declared_work *work)
{
	if (!hook.text) {
		__builtin_memset(work->text, 0, sizeof(work->text));
		__builtin_memset(token->text, 0, sizeof(token->text));
		return;
	}
	fetch_label(ctx, &hook.at.label[0], HOOK_REGS, work->text);
	__builtin_memcpy(token->text, work->text, sizeof(token->text));
	token->text[sizeof(token->text) - 1] = 0;
}

static __always_inline void declared_begin(void *ctx, struct account_thread *thread)
{
	u32 index = thread->process.is->threads + thread->index;
	struct activity_half half = {.token = index};
	struct activity_token *token = account_token(&thread->process, index);
	struct declared_work *work = declared_work_of(thread);
	u64 cpu;

	if (!token || !work)
		return;
	work->rule = hook.rule;
	work->depth = 1;
	declared_text(ctx, token, work);
	for (u32 i = 0; i < ACTIVITY_NAME_LEN; i++)
		token->name[i] = hook.name[i];
	token->cpu_ns = token->wall_ns = token->end_ns = 0;
	/* Odd: live. It is even, unless its thread was lost to us. */
	half.generation = (token->generation + 1) | 1;
	token->begin_ns = bpf_ktime_get_ns();
	barrier();
	*(volatile u32 *)&token->generation = half.generation;
	barrier();
	token->begin_ns = declared_carry(thread, &half, &cpu);
}

static __always_inline void declared_entry(void *ctx)
{
	struct declared_totals *totals = declared_account(hook.rule);
	struct declared_work *work;
	struct account_thread thread;
	struct activity_half half;

	if (!totals)
		return;
	if (!declared_thread(bpf_get_current_task_btf(), &thread)) {
		declared_count(&totals->refused);
		return;
	}
	account_carried(thread.shared, &half);
	work = declared_work_of(&thread);
	if (half.token && work) {
		if (work->rule != hook.rule || hook.at.policy != PAIR_RESTART) {
			work->depth += work->rule == hook.rule;
			declared_count(&totals->nested);
			return;
		}
		declared_end(&thread, false);
	}
	declared_begin(ctx, &thread);
}

static __always_inline void declared_exit(void)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct declared_work *work;
	struct account_thread thread;
	struct activity_half half;

	if (!declared_process(current, &thread.process, 0) || !account_thread_in(current, &thread))
		return;
	account_carried(thread.shared, &half);
	work = declared_work_of(&thread);
	if (!half.token || !work || work->rule != hook.rule)
		return;
	if (hook.at.role == PAIR_EXIT && hook.at.policy == PAIR_COUNT && work->depth > 1) {
		work->depth--;
		return;
	}
	declared_end(&thread, hook.at.role == PAIR_EXIT);
}

NOWHERE(nowhere);

/* uprobe, uretprobe, usdt */
SEC("kprobe/any")
int declared_regs(void *ctx)
{
	bool bad = false;

	KEEP_KERNEL_STACK(ctx, nowhere);
#pragma unroll
	for (int i = 0; i < PAIR_CONDITIONS; i++)
		if (!condition_holds(ctx, &hook.at.condition[i], HOOK_REGS, &bad))
			return 0;
	if (bad)
		return 0;
	if (hook.at.role == PAIR_ENTRY)
		declared_entry(ctx);
	else
		declared_exit();
	return 0;
}
