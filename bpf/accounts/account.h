/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which process, thread and account a task has, and how something is credited.
 *
 * A process that takes part is known by the task storage of its first thread, which the
 * daemon makes, or the fork of such a process. All that the process writes are indexes and
 * generations, which are checked, and times, which are clamped: it can spoil its own
 * accounts and nothing else.
 */
#ifndef TAILCAM_ACCOUNT_H
#define TAILCAM_ACCOUNT_H

#include "abi/activity.h"
#include "lib/core_fixes.h"

/* How many processes have opened. Written by the daemon. */
volatile u32 activities_open;

/* The process of each first thread. Written by the daemon, and at forks. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct activity_owner);
} activity_owners SEC(".maps");

/* By number; written by the daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ACTIVITY_PROCESSES);
	__type(key, u32);
	__type(value, struct activity_process);
} activity_processes SEC(".maps");

#define ACTIVITY_MAPS(map, bytes)                                                    \
	struct {                                                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                            \
		__uint(max_entries, ACTIVITY_PROCESSES);                             \
		__type(key, u32);                                                    \
		__array(                                                             \
			values, struct {                                             \
				__uint(type, BPF_MAP_TYPE_ARRAY);                    \
				__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP); \
				__uint(max_entries, 1);                              \
				__uint(key_size, sizeof(u32));                       \
				__uint(value_size, bytes);                           \
			});                                                          \
	} map SEC(".maps")

/* What each process writes, and its accounts; by the number of the process. Made by the daemon. */
ACTIVITY_MAPS(activity_shared, ACTIVITY_SHARED_BYTES);
ACTIVITY_MAPS(activity_accounts, ACTIVITY_ACCOUNT_BYTES);

#define ACTIVITY_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " is an element")
ACTIVITY_SIZE(activity_thread, ACTIVITY_SHARED_BYTES);
ACTIVITY_SIZE(activity_token, ACTIVITY_SHARED_BYTES);
ACTIVITY_SIZE(activity_client, ACTIVITY_SHARED_BYTES);
ACTIVITY_SIZE(activity_attribute, ACTIVITY_SHARED_BYTES);
ACTIVITY_SIZE(activity_header, ACTIVITY_ACCOUNT_BYTES);
ACTIVITY_SIZE(activity_thread_state, ACTIVITY_ACCOUNT_BYTES);
ACTIVITY_SIZE(activity_account, ACTIVITY_ACCOUNT_BYTES);
_Static_assert(__builtin_offsetof(struct activity_header, unknown) == ACTIVITY_SYSCALLS * sizeof(u64), "an account");

/* The process of a task, with its maps. */
struct account_process {
	struct activity_process *is;
	void *shared, *accounts;
	u32 number, serial;
};

/* A thread that has a slot. */
struct account_thread {
	struct account_process process;
	struct activity_thread *shared;
	struct activity_thread_state *state;
	u32 tid, index;
};

/*
 * Whether a task may take part. The first thing to ask at a hook: nearly all tasks of a
 * machine do not, and tell so with three loads.
 */
static __always_inline bool account_may(struct task_struct *p)
{
	return activities_open && !(p->flags & PF_KTHREAD) && p->group_leader->bpf_storage;
}

static __always_inline void *account_element(void *map, u32 index)
{
	return bpf_map_lookup_elem(map, &index);
}

/* Fills in the process of that number; false: it is gone, or the number has another by now. */
static __always_inline bool account_process_find(u32 number, u32 serial, struct account_process *process)
{
	struct activity_process *is = bpf_map_lookup_elem(&activity_processes, &number);

	if (!is || !serial || is->serial != serial)
		return false;
	process->shared = bpf_map_lookup_elem(&activity_shared, &number);
	if (!process->shared)
		return false;
	process->accounts = bpf_map_lookup_elem(&activity_accounts, &number);
	if (!process->accounts)
		return false;
	process->is = is;
	process->number = number;
	process->serial = serial;
	return true;
}

static __always_inline bool account_process_of(struct task_struct *p, struct account_process *process)
{
	struct activity_owner *owner;

	if (!account_may(p))
		return false;
	owner = bpf_task_storage_get(&activity_owners, p->group_leader, NULL, 0);
	return owner && account_process_find(owner->process, owner->serial, process);
}

/* Where a thread of that process may have its slot, i from its home on. */
static __always_inline u32 account_slot(struct activity_process *process, u32 tid, u32 i)
{
	u32 home = tid * (u32)ACTIVITY_HASH >> (process->thread_shift & 31);

	return 1 + ((home + i) & (process->threads - 1));
}

/* The id of a thread in its slot. The entry of declared programs has those of all pid namespaces. */
static __always_inline u32 account_tid(struct activity_process *process, struct task_struct *p)
{
	return process->flags & ACTIVITY_DECLARED ? p->pid : task_tid_inside(p);
}

/* Finds the slot of a thread of thread->process; false: it has none. */
static __always_inline bool account_thread_in(struct task_struct *p, struct account_thread *thread)
{
	struct account_process *process = &thread->process;
	struct activity_thread *shared;
	u32 tid, index;

	tid = account_tid(process->is, p);
	for (u32 i = 0; i < ACTIVITY_THREAD_WINDOW; i++) {
		index = account_slot(process->is, tid, i);
		shared = account_element(process->shared, index);
		if (!shared)
			return false;
		if (shared->tid != tid)
			continue;
		thread->state = account_element(process->accounts, index);
		thread->shared = shared;
		thread->tid = tid;
		thread->index = index;
		return thread->state;
	}
	return false;
}

/* Finds the process and the slot of a thread; false: it has none. */
static __always_inline bool account_thread_of(struct task_struct *p, struct account_thread *thread)
{
	return account_process_of(p, &thread->process) && account_thread_in(p, thread);
}

/* What a thread carries now. Its own process may write anything there. */
static __always_inline void account_carried(struct activity_thread *thread, struct activity_half *half)
{
	u32 seq = *(volatile u32 *)&thread->seq;

	*half = thread->half[seq & 1];
}

static __always_inline void account_late(struct account_process *process)
{
	struct activity_header *header = account_element(process->accounts, 0);

	if (header)
		__sync_fetch_and_add(&header->late, 1);
}

/* The token at that index, as its process writes it; NULL: there is none. */
static __always_inline struct activity_token *account_token(struct account_process *process, u32 index)
{
	u32 first = 1 + process->is->threads;

	if (index < first || index - first >= process->is->tokens)
		return NULL;
	return account_element(process->shared, index);
}

#define ACCOUNT_SPINS 64

/* Another CPU empties the account: that takes some stores. */
static __always_inline bool account_wait(struct activity_account *account, u32 generation)
{
	for (u32 i = 0; i < ACCOUNT_SPINS; i++)
		if (*(volatile u32 *)&account->generation == generation)
			return true;
	return false;
}

/*
 * Makes an account one of that generation: the first credit empties it of an older one's.
 * While that lasts, its generation is even, as that of no token that lives.
 */
static __always_inline bool account_begin(struct activity_account *account, u32 generation)
{
	u32 seen = *(volatile u32 *)&account->generation;

	if (seen == generation)
		return true;
	if (seen == generation + 1)
		return account_wait(account, generation);
	if (seen && (s32)(generation - seen) < 0)
		return false;
	if (__sync_val_compare_and_swap(&account->generation, seen, generation + 1) != seen)
		return account_wait(account, generation);
	__builtin_memset(account->value, 0, sizeof(account->value));
	__sync_val_compare_and_swap(&account->generation, generation + 1, generation);
	return true;
}

/* The account of a token, if it is still of that generation; else what comes is late, and is counted. */
static __always_inline struct activity_account *account_of_token(struct account_process *process, u32 index,
								 u32 generation)
{
	struct activity_account *account;
	struct activity_token *token;

	if (!index)
		return NULL;
	token = account_token(process, index);
	account = token ? account_element(process->accounts, index) : NULL;
	if (!account)
		return NULL;
	if ((generation & 1) && *(volatile u32 *)&token->generation == generation && account_begin(account, generation))
		return account;
	account_late(process);
	return NULL;
}

/* The account that a task carries; NULL: none. */
static __always_inline struct activity_account *account_of(struct task_struct *p)
{
	struct account_thread thread;
	struct activity_half half;

	if (!account_thread_of(p, &thread))
		return NULL;
	account_carried(thread.shared, &half);
	return account_of_token(&thread.process, half.token, half.generation);
}

/* Adds to a value of an account: enum activity_value. */
static __always_inline void account_add(struct activity_account *account, u32 value, u64 n)
{
	u64 index = value;

	if (!__builtin_constant_p(value))
		barrier_var(index); /* up to 6.12 the verifier loses the check of 32 bits */
	if (index < ACTIVITY_WORDS)
		__sync_fetch_and_add(&account->value[index], n);
}

/* Notes what a task carries, for what will be done for it; false: nothing, to is cleared. */
static __always_inline bool account_refer(struct task_struct *p, struct activity_reference *to)
{
	struct account_thread thread;
	struct activity_half half;

	to->process = to->serial = to->token = to->generation = 0;
	if (!account_thread_of(p, &thread))
		return false;
	account_carried(thread.shared, &half);
	if (!half.token || !account_token(&thread.process, half.token))
		return false;
	to->process = thread.process.number;
	to->serial = thread.process.serial;
	to->token = half.token;
	to->generation = half.generation;
	return true;
}

/* The account that was noted; NULL: nobody's, or its token has ended, which is counted. */
static __always_inline struct activity_account *account_referred(struct activity_reference *from)
{
	struct account_process process;

	if (!activities_open || !account_process_find(from->process, from->serial, &process))
		return NULL;
	return account_of_token(&process, from->token, from->generation);
}

#endif
