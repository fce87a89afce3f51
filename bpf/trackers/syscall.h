/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The syscall tracker: of the functions that the named calls have (call.bpf.c),
 * so that other calls cost nothing; or of sys_enter and sys_exit, where a call
 * that no rule names costs one load and compare at each end, beside the price of
 * these tracepoints. Threads that die inside a call, or change their id in
 * execve, free their slot at the process events.
 */
#ifndef TAILCAM_TRACKER_SYSCALL_H
#define TAILCAM_TRACKER_SYSCALL_H

#include "lib/growth.h"
#include "lib/histogram.h"
#include "lib/outlier.h"
#include "lib/stacks.h"
#include "lib/timeout_scan.h"
#include "trackers/syscall_scratch.h"

const volatile bool track_syscall;
const volatile bool calls_by_tracepoint; /* a rule has attach: all */
const volatile bool progress_stacks;	 /* a rule wants them */
const volatile u32 call_mask;		 /* buckets of the table, less one; a power of two less one */

/* Floors and timeouts, by number of the call; written by the daemon. */
volatile u64 floor_syscall[SYSCALLS];
volatile u64 timeout_syscall[SYSCALLS];

/* enum call_wanted, by number in either table; written by the daemon. */
volatile u8 calls_wanted[SYSCALLS_32];

/* A thread inside a tracked system call. */
struct call_slot {
	u64 start_ns;
	u64 task; /* struct task_struct *, as a number */
	u32 nr;
	u32 cpu;
	struct deadline deadline;
	u64 _pad;
};

/* Threads in tracked system calls, their slots and further segments; written here. Sized and grown by the daemon. */
ARRAY_MAP(call_keys, struct bucket);
ARRAY_MAP(call_slots, struct call_slot);
SEGMENT_MAP(more_call_slots, SEGMENTS, struct call_slot);

static __always_inline struct call_slot *call_slot_at(int index)
{
	return SLOT_AT(&call_slots, &more_call_slots, index);
}

static __always_inline void call_forget(int index, struct call_slot *slot)
{
	slot->start_ns = 0;
	table_release(TABLE_CALLS, &call_keys, index);
}

/* The slot of the call that a thread is in; NULL: none is known. */
static __always_inline struct call_slot *call_find(u32 tid, int *index)
{
	*index = table_find(TABLE_CALLS, &call_keys, call_mask, tid, HASHED);
	return *index < 0 ? NULL : call_slot_at(*index);
}

/* Forgets the call that a thread is in, if any, and counts that. */
static __always_inline void call_drop(u32 tid, u64 *counter)
{
	struct call_slot *slot;
	int index;

	slot = call_find(tid, &index);
	if (!slot)
		return;
	if (counter)
		__sync_fetch_and_add(counter, 1);
	call_forget(index, slot);
}

/* ----------------------------------------------------------------- progress */

/*
 * Where a slow system call was: each time a thread leaves its CPU within a call
 * that is past the floor, its kernel stack is kept, so that a call of seconds
 * shows how it got on.
 */

/* Stacks of slow calls by thread; written here. Sized by the daemon. Slow calls are few: the oldest is dropped. */
MAP(progresses, LRU_HASH, 0, 1, u32, struct progress);

/* What a new element of progresses begins with; never written. Fixed size. */
MAP(no_progress, ARRAY, 0, 1, u32, struct progress);

/* prev, which is current, leaves its CPU. */
static __always_inline void progress_note(void *ctx, struct task_struct *prev, u32 state, u64 now)
{
	u32 tid = prev->pid, none = 0, i;
	struct call_slot *slot;
	struct progress *p, *empty;
	struct progress_stack *e;
	u64 start, count;
	long size;
	int index;

	slot = call_find(tid, &index);
	if (!slot)
		return;
	start = slot->start_ns;
	if (!start || (s64)(now - start) < (s64)floor_syscall[slot->nr & (SYSCALLS - 1)])
		return;
	p = bpf_map_lookup_elem(&progresses, &tid);
	if (!p) {
		empty = bpf_map_lookup_elem(&no_progress, &none);
		if (!empty || bpf_map_update_elem(&progresses, &tid, empty, BPF_ANY))
			return;
		p = bpf_map_lookup_elem(&progresses, &tid);
		if (!p)
			return;
	}
	if (p->start_ns != start) {
		p->start_ns = start;
		p->count = 0;
	}
	count = p->count++;
	/* The first stays; the others go round. */
	i = count ? 1 + (u32)(count - 1) % (PROGRESS_STACKS - 1) : 0;
	barrier_var(i);
	e = &p->stack[i & (PROGRESS_STACKS - 1)];
	barrier_var(e);
	e->age_ns = now - start;
	e->state = state;
	size = bpf_get_stack(ctx, e->kernel, sizeof(e->kernel), 0);
	e->frames = size > 0 ? size / sizeof(u64) : 0;
}

/* Sends what is known of the call that tid began at start, before its outlier. */
static __always_inline void progress_send(u32 tid, u64 start)
{
	struct progress *p = bpf_map_lookup_elem(&progresses, &tid);
	struct ring_use *use;
	struct progress *out;

	if (!p || p->start_ns != start || !p->count)
		return;
	use = ring_claim(RING_PROGRESS, sizeof(*out));
	if (!use)
		return;
	out = bpf_ringbuf_reserve(&outliers, sizeof(*out), 0);
	if (!out) {
		ring_unclaim(use, sizeof(*out));
		return;
	}
	if (bpf_probe_read_kernel(out, sizeof(*out), p)) {
		bpf_ringbuf_discard(out, 0);
		ring_unclaim(use, sizeof(*out));
		return;
	}
	out->type = PROGRESS_TYPE;
	out->tid = tid;
	bpf_ringbuf_submit(out, 0);
}

/* -------------------------------------------------------------------- entry */

/*
 * What any rule could want of calls with this number: enum call_wanted. Whose it
 * is costs more to find out than most calls are worth.
 */
static __always_inline u32 syscall_bits(u32 nr)
{
	if (nr >= SYSCALLS_32)
		return 0;
	barrier_var(nr);
	return calls_wanted[nr & (SYSCALLS_32 - 1)];
}

/* Whether any rule could want the call that current enters, at its function. *nr becomes what rules have. */
static __always_inline bool syscall_wanted(struct task_struct *current, void *regs, u32 *nr)
{
	u32 n = *nr;

	if (n >= SYSCALLS_32)
		return false;
	if (task_compat(current, regs)) {
		n += SYSCALLS_32;
		barrier_var(n); /* a branch is cheaper for the others than a choice */
	}
	*nr = n;
	barrier_var(n);
	return floor_syscall[n & (SYSCALLS - 1)] != NEVER;
}

static __always_inline void syscall_entry(struct task_struct *current, u32 nr, u64 now, u32 cpu, struct cpu_state *me)
{
	struct call_slot *slot;
	bool fresh;
	int index;

	index = table_claim(TABLE_CALLS, &call_keys, call_mask, (u32)current->pid, HASHED, &fresh);
	if (index < 0) {
		if (me)
			__sync_fetch_and_add(&me->table_full[TRACK_SYSCALL], 1);
		return;
	}
	if (!fresh && me)
		__sync_fetch_and_add(&me->replaced[TRACK_SYSCALL], 1);
	slot = call_slot_at(index);
	if (!slot)
		return;
	slot->nr = nr;
	slot->cpu = cpu;
	if (timeouts)
		slot->task = pointer_number(current);
	slot->start_ns = now;
}

/* --------------------------------------------------------------------- exit */

/* The floor is passed. current is the slow task. */
static __always_inline void syscall_outlier(void *ctx, struct task_struct *current, u32 nr, s64 ret, u32 entry_cpu,
					    u64 start, u64 timed_out, u64 now, u32 cpu)
{
	struct scratch *s = call_scratch_claim(cpu);
	struct outlier *out;

	if (!s)
		return;
	outlier_reset(s, TRACK_SYSCALL, cpu, start, now);
	s->timed_out = timed_out;
	out = &s->out;
	outlier_task(s, current);
	if (is_self(s->facts.pid))
		goto out;
	out->syscall = s->facts.syscall = nr;
	out->ret = ret;
	out->entry_cpu = entry_cpu;
	if (!evaluate(s, TRACK_SYSCALL, now - start))
		goto out;
	stacks_of_current(ctx, s);
	context_of_current(out);
	if (progress_stacks && s->wants_progress)
		progress_send(out->tid, start);
	outlier_emit(s);
out:
	call_scratch_release(s);
}

/* current ends a system call. */
static __always_inline void histogram_syscall(struct task_struct *current, u32 nr, u32 cpu, u64 now, u64 delay)
{
	struct scratch *s;
	u32 needs;

	histogram_delay(TRACK_SYSCALL, cpu, delay, RULE_WRITER);
	if (!histogram_rules_of(TRACK_SYSCALL))
		return;
	s = call_scratch_claim(cpu);
	if (!s)
		return;
	histogram_facts_in(s, TRACK_SYSCALL, cpu, &needs);
	histogram_task(&s->facts, current, needs);
	s->facts.syscall = nr;
	if (!is_self(s->facts.pid))
		histogram_evaluate(s, TRACK_SYSCALL, cpu, now, delay);
	call_scratch_release(s);
}

/*
 * The call of the slot did not end as nr, but was it: execve ends as a call of
 * the table that is right for the new program (arch/x86/kernel/process_64.c,
 * set_personality_64bit()), and execveat as execve.
 */
static __always_inline bool call_became(u32 was, u32 nr)
{
	u32 exec = was >= SYSCALLS_32 ? CALL_EXEC_32 : CALL_EXEC;

	return syscall_bits(was & (SYSCALLS_32 - 1)) & exec && syscall_bits(nr) & (CALL_EXEC | CALL_EXEC_32);
}

/* nr: the number of the call that ends, in either table; negative: whichever began. */
static __always_inline void syscall_exit(void *ctx, struct task_struct *current, s32 nr, s64 ret, u64 now, u32 cpu,
					 struct cpu_state *me)
{
	struct call_slot *slot;
	u64 start, timed_out = 0;
	u32 entry_cpu, was;
	bool slow;
	int index;

	slot = call_find((u32)current->pid, &index);
	if (!slot)
		return;
	start = slot->start_ns;
	entry_cpu = slot->cpu;
	was = slot->nr;
	if (nr >= 0 && (was & (SYSCALLS_32 - 1)) != nr && !call_became(was, nr)) { /* not the call that began here */
		if (me)
			__sync_fetch_and_add(&me->replaced[TRACK_SYSCALL], 1);
		call_forget(index, slot);
		return;
	}
	if (me && RULE_WRITER == SHARED)
		__sync_fetch_and_add(&me->seen[TRACK_SYSCALL], 1);
	else if (me)
		me->seen[TRACK_SYSCALL]++;
	histogram_syscall(current, was, cpu, now, now - start);
	slow = (s64)(now - start) >= (s64)floor_syscall[was & (SYSCALLS - 1)];
	if (slow)
		timed_out = deadline_take(&slot->start_ns, &slot->deadline);
	call_forget(index, slot);
	if (slow)
		syscall_outlier(ctx, current, was, ret, entry_cpu, start, timed_out, now, cpu);
}

/* Whatever call current was in has ended, and the kernel has skipped the program that tells (see tailcam.bpf.c). */
static __always_inline void syscall_skipped(struct task_struct *current, struct cpu_state *me)
{
	call_drop((u32)current->pid, me ? &me->replaced[TRACK_SYSCALL] : NULL);
}

/* ----------------------------------------------------------------- timeouts */

/* As task_seed, of a task that is in a system call. */
static __always_inline void call_seed(struct task_struct *p)
{
	struct call_slot *slot;
	int index;

	slot = call_find((u32)p->pid, &index);
	if (slot)
		__sync_val_compare_and_swap(&slot->task, 0, pointer_number(p));
}

static __always_inline void call_scan(struct tick_walk *w, u32 index)
{
	struct call_slot *slot = call_slot_at(index);
	u64 start;
	u32 nr;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	nr = slot->nr;
	if (start)
		timeout_check(w, TRACK_SYSCALL, index, start, start, timeout_syscall[nr & (SYSCALLS - 1)],
			      &slot->deadline);
}

static __always_inline void expire_call(struct tick_walk *w, u32 index)
{
	struct call_slot *slot = call_slot_at(index);
	struct task_struct *task;
	struct scratch *s;
	u64 start;
	u32 tid;

	if (!slot)
		return;
	start = *(volatile u64 *)&slot->start_ns;
	s = expiry_start(w, TRACK_SYSCALL, start, start, &slot->deadline);
	if (!s)
		return;
	tid = table_key_at(TABLE_CALLS, &call_keys, index);
	task = (struct task_struct *)slot->task;
	if (!read_task(s, task, tid) || is_self(s->facts.pid)) {
		slot->deadline.due_ns = w->now + NSEC_PER_SEC;
		return;
	}
	s->out.syscall = s->facts.syscall = slot->nr;
	s->out.entry_cpu = slot->cpu;
	evaluate(s, TRACK_SYSCALL, w->now - start);
	if (!expiry_claim(s, &slot->start_ns, &slot->deadline, start, start))
		return;
	if (s->wants_kernel)
		read_stack(s, tid);
	if (s->wants_user)
		read_user(s, task, task_regs(task));
	if (progress_stacks && s->wants_progress)
		progress_send(tid, start);
	outlier_emit(s);
}

#endif
