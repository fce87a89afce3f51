/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a thread has run in a slice, by its own clock (CLOCK_THREAD_CPUTIME_ID), which the
 * scheduler brings up to date at each switch. That stands while a hypervisor, an interrupt
 * that the kernel accounts apart, or a task whose switches the machine keeps from every
 * tracer has the CPU: such time is of the slice, and stolen.
 *
 * In user space nobody can read that clock without a system call. So where threads have
 * switched tokens within a slice, what was stolen is credited as far as it is certain whom
 * it was taken from; the rest is of the process (struct activity_header), and it is in the
 * CPU time of one of its tokens.
 */
#ifndef TAILCAM_ACCOUNT_SLICE_H
#define TAILCAM_ACCOUNT_SLICE_H

#include "accounts/account.h"

/*
 * The scheduler stops the clock of who leaves before the hook, and has started that of who
 * comes then. So by up to this, the end of a slice is moved to where the clock says it was;
 * where that would take from one of several tokens what may be another's, by as much as a
 * switch usually takes.
 */
#define SLICE_SWITCH_NS 20000
#define SLICE_USUAL_NS 2000

/* The end of a slice, for the token that was carried then. */
struct account_slice {
	u64 end;	/* of the slice */
	u64 cpu_ns;	/* since the slice began, or tokens were switched in it */
	u64 lost_ns;	/* stolen since then */
	u64 unknown_ns; /* stolen, and from which token of the slice is not known */
};

/* It has left, as far as is known, and runs: so it came back unseen. But its own clock tells how long it ran. */
static __always_inline void slice_unseen_begin(struct activity_thread_state *state, u64 since, u64 ran, u64 now,
					       struct account_slice *slice)
{
	u64 out = state->out_ns, start = since > out ? since : out;

	if (now <= out)
		return;
	if (ran > now - out)
		ran = now - out;
	state->away_ns += now - out - ran;
	if (now > start)
		slice->cpu_ns = ran < now - start ? ran : now - start;
}

/*
 * Ends a slice of a thread that carries a token since then. searched_ns: for how long its
 * clock had been stopped when it left.
 */
static __always_inline void slice_end(struct account_thread *thread, struct task_struct *p, u64 since, s64 searched_ns,
				      u64 now, struct account_slice *slice)
{
	struct activity_thread_state *state = thread->state;
	u64 ran = p->se.sum_exec_runtime - state->runtime_ns, begin = state->slice_ns, start;
	s64 stood, left;

	slice->end = now;
	slice->cpu_ns = slice->lost_ns = slice->unknown_ns = 0;
	if (state->tid != thread->tid) { /* its first one */
		if (since && now > since)
			slice->cpu_ns = now - since;
		return;
	}
	if (state->out_ns) {
		slice_unseen_begin(state, since, ran, now, slice);
		return;
	}
	if (now <= begin) { /* it came back before the last slice had ended: see below */
		slice->end = begin;
		return;
	}
	stood = (s64)(now - begin - ran);
	if (stood < -SLICE_SWITCH_NS)
		stood = -SLICE_SWITCH_NS;
	if (stood > (s64)(now - begin)) /* no thread runs backwards: it is another one's */
		stood = 0;
	start = since > begin ? since : begin;
	if (start > now) {
		slice->end = start - now < SLICE_SWITCH_NS ? start : now;
		return;
	}
	left = stood;
	if (left > searched_ns + (start > begin ? SLICE_USUAL_NS : SLICE_SWITCH_NS))
		left = searched_ns;
	if (left > (s64)(now - start))
		left = now - start;
	slice->end = now - left;
	slice->unknown_ns = stood - left;
	state->away_ns += slice->unknown_ns;
	if (slice->unknown_ns > start - begin) {
		slice->lost_ns = slice->unknown_ns - (start - begin);
		if (slice->lost_ns > slice->end - start)
			slice->lost_ns = slice->end - start;
		slice->unknown_ns -= slice->lost_ns;
	}
	slice->cpu_ns = slice->end - start - slice->lost_ns;
}

/* Credits it. account: of the token; NULL: none. */
static __always_inline void slice_credit(struct account_process *process, struct activity_account *account,
					 const struct account_slice *slice)
{
	struct activity_account *header;

	if (account && slice->cpu_ns)
		account_add(account, ACTIVITY_CPU_NS, slice->cpu_ns);
	if (account && slice->lost_ns) {
		account_add(account, ACTIVITY_RUNNABLE_NS, slice->lost_ns);
		account_add(account, ACTIVITY_RUNNABLE_STOLEN_NS, slice->lost_ns);
	}
	if (!slice->unknown_ns)
		return;
	header = account_element(process->accounts, 0);
	if (header)
		account_add(header, ACTIVITY_RUNNABLE_STOLEN_NS, slice->unknown_ns);
}

/* How long a thread has not run, in all. */
static __always_inline u64 account_away(struct account_thread *thread)
{
	return thread->state->tid == thread->tid ? thread->state->away_ns : 0;
}

/* The CPU time of a thread, which runs, since then; away: what account_away() was. */
static __always_inline u64 account_ran(struct account_thread *thread, u64 since, u64 away, u64 now)
{
	u64 off = account_away(thread) - away, time = now - since;

	return off < time ? time - off : 0;
}

#endif
