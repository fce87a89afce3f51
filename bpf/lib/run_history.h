/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who ran on a CPU: the history of its switches, and who ran there during a wait. */
#ifndef TAILCAM_RUN_HISTORY_H
#define TAILCAM_RUN_HISTORY_H

#include "lib/state.h"
#include "lib/task.h"

/*
 * A segment of the history whose end was not seen, and who runs now while switches are not noted. No
 * thread has this id: PID_MAX_LIMIT is 1 << 22.
 */
#define RUN_UNKNOWN (1U << 31)

/* From here on switches are not noted: how long who got the CPU last runs is not known. */
static __always_inline void run_stops(struct cpu_state *me)
{
	if (me->last_tid == RUN_UNKNOWN)
		return;
	me->last_tid = RUN_UNKNOWN;
	me->segments[(me->switches - 1) & (RUN_HISTORY - 1)].tid = RUN_UNKNOWN;
}

/*
 * prev leaves this CPU. Some machines keep switches and wake-ups from every
 * tracer: then prev is not who got the CPU last (docs/decisions/0001-pending-table.md).
 * How long that one ran is not known: it is not told to have run at all. Called
 * before the outliers of this switch are made.
 */
static __always_inline void run_ends(u32 prev_tid, struct cpu_state *me)
{
	u32 n = me->switches;

	if (!n || me->last_tid == prev_tid || me->last_tid == RUN_UNKNOWN)
		return;
	me->unseen++;
	me->segments[(n - 1) & (RUN_HISTORY - 1)].tid = RUN_UNKNOWN;
}

/* next runs on this CPU from now on; the history answers "who ran instead". */
static __always_inline void run_begins(struct task_struct *next, u32 tid, struct cpu_state *me, u64 now)
{
	u32 n = me->switches;
	struct run_segment *run = &me->segments[n & (RUN_HISTORY - 1)];

	me->last_tid = tid;
	me->switches = n + 1;
	run->start_ns = now;
	run->tid = tid;
	run->pid = next->tgid;
	COPY_COMM(run->comm, next);
}

struct run_walk {
	struct outlier *out;
	struct cpu_state *cpu;
	u64 since;
	u64 until; /* the end of the segment in hand */
	u32 head;
};

/*
 * Adds one segment of a CPU's run history, newest first, to its task's account,
 * until before the wait. Accounts are few: where two tasks meet in one, the
 * longer stays, so whoever ran for most of the wait is among them.
 */
static long run_step(u32 i, struct run_walk *w)
{
	struct run_segment *from = &w->cpu->segments[(w->head - 1 - i) & (RUN_HISTORY - 1)];
	u64 start = from->start_ns;
	struct run_total *account;
	u32 tid = from->tid;
	s64 ns;

	if (!start)
		return 1;
	ns = w->until - ((s64)(start - w->since) > 0 ? start : w->since);
	if (ns > 0 && tid != RUN_UNKNOWN) {
		account = &w->out->runs[tid & (TOP_RUNS - 1)];
		if (account->ns && account->tid == tid) {
			account->ns += ns;
		} else if (account->ns < (u64)ns) {
			account->ns = ns;
			account->tid = tid;
			account->pid = from->pid;
			__builtin_memcpy(account->comm, from->comm, TASK_COMM_LEN);
		}
	}
	w->until = start;
	return (s64)(start - w->since) <= 0;
}

/* Who ran on the CPU where the task waited, from since to now. */
static __always_inline void outlier_runs(struct outlier *out, u32 cpu, u64 since, u64 now)
{
	struct cpu_state *there = this_cpu(cpu);
	struct run_walk w = {.out = out, .cpu = there, .since = since, .until = now};

	if (!there)
		return;
	__builtin_memset(out->runs, 0, sizeof(out->runs));
	if (there->last_tid == RUN_UNKNOWN)
		return;
	w.head = there->switches;
	bpf_loop(RUN_HISTORY, run_step, &w, 0);
}

#endif
