/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The pending table of the trackers wakeup and offcpu: tasks that wait. */
#ifndef TAILCAM_TRACKER_SCHED_TABLE_H
#define TAILCAM_TRACKER_SCHED_TABLE_H

#include "lib/growth.h"
#include "lib/outlier.h"
#include "lib/timeout.h"

const volatile bool track_wakeup;
const volatile bool track_offcpu;
const volatile u32 task_mask; /* buckets of the table, less one; a power of two less one */

/* Floors and timeouts; written by the daemon. */
volatile u64 floor_wakeup[FLOOR_THREADS];		/* by is-kernel-thread */
volatile u64 floor_offcpu[FLOOR_THREADS][FLOOR_STATES]; /* by is-kernel-thread, number of the state bit */
volatile u64 timeout_wakeup;
volatile u64 timeout_offcpu[TIMEOUT_STATES]; /* by number of the state bit; the last is unused */

/*
 * A task that left the CPU: asleep, runnable again, or preempted. Its key is in
 * here as well, so that whoever looks a task up where its number says touches no
 * other line. It is written after the claim and zeroed before the release, so
 * a slot that has it is the task's; one that does not may be.
 */
struct task_slot {
	u64 off_ns;  /* when it blocked; 0: it did not */
	u64 wake_ns; /* since when it is runnable; 0: asleep */
	u64 task;    /* struct task_struct *, as a number */
	u32 tid;     /* the key; 0: not known */
	u16 state;   /* it sleeps in */
	u16 flags;   /* enum outlier_flag, SLOT_MOVED, SLOT_WOKEN */
	u32 waker_tid;
	u32 waker_pid;
	u16 entry_cpu;
	u16 off_cpu;
	u16 waker_cpu;
	u16 waker_context; /* WAKER_* */
	char waker_comm[TASK_COMM_LEN];
	/* Second cache line, only when it moved while runnable. */
	u64 here_ns; /* since when it waits on here_cpu */
	u64 best_ns; /* longest wait on one CPU before that */
	u32 here_cpu;
	u32 best_cpu;
	u64 _pad[5];
	/* Third cache line, only when it waits for too long. */
	struct deadline off_deadline;
	struct deadline wake_deadline;
};

_Static_assert(__builtin_offsetof(struct task_slot, here_ns) == 64, "what every wait needs fills one cache line");
_Static_assert(sizeof(struct task_slot) == 192, "three cache lines");

/* Tasks by thread id, their slots and further segments; written here. Sized and grown by the daemon. */
ARRAY_MAP(task_keys, struct bucket);
ARRAY_MAP(task_slots, struct task_slot);
SEGMENT_MAP(more_task_slots, SEGMENTS, struct task_slot);

/* task_slot.flags, beside enum outlier_flag */
#define SLOT_MOVED (1u << 15) /* the second cache line holds something */
#define SLOT_WOKEN (1u << 14) /* the waker is noted */

/* task_slot.entry_cpu of a task that was woken before its switch-out was seen */
#define WOKEN_EARLY 0xffff

static __always_inline struct task_slot *task_slot_at(int index)
{
	return SLOT_AT(&task_slots, &more_task_slots, index);
}

/* Where a task stands if not where its number says: its index, or NO_SLOT. */
__noinline int task_find_elsewhere(u32 tid)
{
	return table_find(TABLE_TASKS, &task_keys, task_mask, tid, DIRECT);
}

/* The slot that the number of a task says, if it is its; NULL: it stands elsewhere, or nowhere. */
static __always_inline struct task_slot *task_slot_own(u32 tid)
{
	u32 index = tid & (task_mask * BUCKET_KEYS + BUCKET_KEYS - 1);
	struct task_slot *slot = bpf_map_lookup_elem(&task_slots, &index);

	return slot && *(volatile u32 *)&slot->tid == tid ? slot : NULL;
}

/* The slot of a task; NULL: it has none. */
static __always_inline struct task_slot *task_find(u32 tid)
{
	struct task_slot *slot = task_slot_own(tid);
	int index;

	if (slot)
		return slot;
	index = task_find_elsewhere(tid);
	return index < 0 ? NULL : task_slot_at(index);
}

/* Between two waits a task keeps its slot, empty; only its death frees it. */
static __always_inline void task_clear(struct task_slot *slot)
{
	slot->off_ns = 0;
	slot->wake_ns = 0;
	slot->flags = 0;
	slot->entry_cpu = 0;
}

/* The last switch of a task: nothing of it may stay. True: something was there. */
static __always_inline bool task_forget(u32 tid)
{
	int index = task_find_elsewhere(tid);
	struct task_slot *slot;

	if (index < 0)
		return false;
	slot = task_slot_at(index);
	if (!slot)
		return false;
	task_clear(slot);
	*(volatile u32 *)&slot->tid = 0;
	table_release(TABLE_TASKS, &task_keys, index);
	return true;
}

/* Claims a slot for a task that has none where its number says; its index, or NO_SLOT: the table is full. */
__noinline int task_claim_elsewhere(u32 tid)
{
	struct task_slot *slot;
	bool fresh;
	int index;

	index = table_claim(TABLE_TASKS, &task_keys, task_mask, tid, DIRECT, &fresh);
	if (index < 0)
		return NO_SLOT;
	slot = task_slot_at(index);
	if (!slot)
		return NO_SLOT;
	if (fresh) {
		slot->entry_cpu = WOKEN_EARLY; /* nobody could note it: assume so */
		*(volatile u32 *)&slot->tid = tid;
	}
	return index;
}

/* The slot of a task that leaves its CPU, empty but for a waker that was faster. */
static __always_inline struct task_slot *task_claim(u32 tid, u32 tracker, struct cpu_state *me)
{
	struct task_slot *slot = task_slot_own(tid);
	int index;

	if (!slot) {
		index = task_claim_elsewhere(tid);
		if (index >= 0)
			slot = task_slot_at(index);
		if (!slot) {
			if (me)
				__sync_fetch_and_add(&me->table_full[tracker], 1);
			return NULL;
		}
	}
	if (!slot->off_ns && !slot->wake_ns)
		return slot;
	/* Its return to a CPU was not seen: what stands here is of an earlier wait. */
	if (me)
		__sync_fetch_and_add(&me->replaced[tracker], 1);
	task_clear(slot);
	return slot;
}

#endif
