/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stacks in the recorder: of tasks that return from a long wait, of tasks that run, and of those that run for long. */
#ifndef TAILCAM_RECORDER_STACK_H
#define TAILCAM_RECORDER_STACK_H

#include "lib/core_fixes.h"
#include "lib/interrupts.h"
#include "recorder/ring.h"

const volatile bool record_wait;
const volatile bool record_run;

/*
 * What is a long wait. Uninterruptible ones are of the kernel's own making, and only the stack
 * tells why. Of others, the system call tells most.
 */
#define WAIT_UNINTERRUPTIBLE_NS 5000000
#define WAIT_INTERRUPTIBLE_NS 20000000

/* A stack takes some 10 us, as its memory is cold: in a window, a CPU takes so many at most, 0.25 % of its time. */
#define WAIT_WINDOW_NS 100000000
#define WAIT_UNINTERRUPTIBLE_MOST 20
#define WAIT_INTERRUPTIBLE_MOST 5

/*
 * Of waits that a timer has ended, as all those of who polls, and of servers that are always busy
 * there is no end, and nothing is slow: for each stack the next one is due so much later, and may
 * come so much too early.
 */
#define SELDOM_NS 90000000
#define SELDOM_EARLY_NS (20 * (u64)SELDOM_NS)

/*
 * Who has had its CPU for so long without a switch has a stack, and another one each time that so
 * much has passed: two ticks at 250 Hz, less what they jitter by. Who switches more often has none.
 * As the run grows they become rarer. For each of a server that is always busy all requests in
 * flight wait, and it tells of none of them. So who has just woken others, read or written has
 * few in the long run. Who stops doing so runs for long since then.
 */
#define RUN_LONG_NS 5000000
#define RUN_EVERY_NS 7500000
#define RUN_SELDOM_NS 23500000
#define RUN_SHARE 8 /* of the run: 60 ms have one each 7.5 ms, and 188 ms one each 23.5 */

/* Frames of a long run in the kernel, in two records: what it does there is often said by the outer ones. */
#define RUN_FRAMES (2 * STACK_FRAMES)

/* Of an interrupted stack: some dozen are of the interrupt and its hook, before those that are wanted. */
#define RUN_DEPTH 32 /* power of two */

struct run_scratch {
	u64 ip[RUN_DEPTH];
};

/* Where such a stack is taken, one a CPU: in hard interrupts, which do not nest here. Sized by the daemon: CPUs. */
MAP(run_scratch, ARRAY, 0, 1, u32, struct run_scratch);

static __always_inline void stack_fill(struct record *r, u16 kind, u32 pid, u64 *ip)
{
	r->stack.pid = pid;
	r->stack.kind = kind;
#pragma unroll
	for (int i = 0; i < STACK_FRAMES; i++) {
		r->stack.low[i] = ip[i];
		r->stack.high[i] = ip[i] >> 32;
	}
}

/* Whether one of a kind that is seldom taken may be, of which the next is due then. */
static __always_inline bool seldom_may(u64 due_ns, u64 now)
{
	return (s64)(due_ns - now) <= (s64)SELDOM_EARLY_NS;
}

static __always_inline void seldom_taken(u64 *due_ns, u64 now)
{
	*due_ns = ((s64)(*due_ns - now) > 0 ? *due_ns : now) + SELDOM_NS;
}

/* Not of threads of the kernel that have nothing to do. */
static __always_inline bool wait_uninterruptible(u32 state)
{
	return state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD);
}

/* Beside the state in which a task has waited: a timer has ended that. No state of the kernel. */
#define WAIT_TIMED (1U << 31)

/* Whether the wait of next deserves a stack. */
static __always_inline bool wait_is_long(struct task_struct *next, u32 state, u64 wait)
{
	if (wait_uninterruptible(state))
		return wait >= WAIT_UNINTERRUPTIBLE_NS;
	return wait >= WAIT_INTERRUPTIBLE_NS && !(next->flags & PF_KTHREAD);
}

/*
 * next gets the CPU after a long wait. It is not current, so this is the stack with which it
 * left its CPU, without functions of the scheduler (stack_trace_consume_entry_nosched() in
 * kernel/stacktrace.c). A function of its own: few switches need it.
 */
static __noinline int record_wait_stack(void *ctx, struct task_struct *next, struct cpu_state *me, u32 wait, u64 now)
{
	struct wait_stacks *waits = &me->waits;
	u32 state = wait & ~WAIT_TIMED;
	bool timed = wait & WAIT_TIMED;
	u64 ip[STACK_FRAMES] = {};
	struct record r;

	if (record_shed(REC_WAIT))
		return 0;
	if (now - waits->window_ns >= WAIT_WINDOW_NS) {
		waits->window_ns = now;
		waits->uninterruptible = 0;
		waits->interruptible = 0;
	}
	if (!wait_uninterruptible(state)) {
		if (waits->interruptible >= WAIT_INTERRUPTIBLE_MOST || (timed && !seldom_may(waits->timed_ns, now)))
			return 0;
		waits->interruptible++;
		if (timed)
			seldom_taken(&waits->timed_ns, now);
	} else if (waits->uninterruptible++ >= WAIT_UNINTERRUPTIBLE_MOST) {
		waits->left_out++;
		return 0;
	}
	if (bpf_get_task_stack(next, ip, sizeof(ip), 0) > 0) {
		record_head(&r, REC_WAIT, bpf_get_smp_processor_id(), next->pid,
			    now + 1); /* it is current after the switch */
		stack_fill(&r, STACK_KERNEL, next->tgid, ip);
		record(ctx, &r);
	}
	waits->taken++;
	waits->taken_ns += bpf_ktime_get_ns() - now;
	return 0;
}

/* A timer has interrupted current: in the kernel, or else in user space. */
static __always_inline int record_sample(void *ctx)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 ip[STACK_FRAMES] = {};
	u16 kind = STACK_KERNEL;
	struct record r;

	if (!current->pid || record_shed(REC_SAMPLE)) /* idle */
		return 0;
	if (bpf_get_stack(ctx, ip, sizeof(ip), 0) <= 0 || !ip[0]) {
		kind = STACK_USER;
		if (bpf_get_stack(ctx, ip, sizeof(ip), BPF_F_USER_STACK) <= 0)
			return 0;
	}
	record_head(&r, REC_SAMPLE, bpf_get_smp_processor_id(), current->pid, bpf_ktime_get_ns());
	stack_fill(&r, kind, current->tgid, ip);
	return record(ctx, &r);
}

/* current wakes another, in a system call or by a packet that it sends on this machine. */
static __always_inline void run_wakes(u32 context, u32 cpu, u64 now)
{
	struct cpu_state *me;

	if (context != WAKER_TASK && !(context & WAKER_LOCAL))
		return;
	me = this_cpu(cpu);
	if (me)
		me->served_ns = now;
}

/* Whether current has had this CPU for long, and a stack is due. */
static __always_inline bool run_is_due(struct task_struct *current, struct cpu_state *me, u64 now)
{
	struct run_stacks *runs = &me->runs;
	u32 tid = current->pid;
	s64 ran, quiet, every;
	u64 calls;

	if (!tid || me->last_tid != tid || !me->switches)
		return false;
	ran = now - me->segments[(me->switches - 1) & (RUN_HISTORY - 1)].start_ns;
	if (ran < RUN_LONG_NS)
		return false;
	calls = task_calls(current);
	if (calls != runs->calls) {
		runs->calls = calls;
		me->served_ns = now;
	}
	quiet = now - me->served_ns;
	if (quiet > ran)
		quiet = ran;
	every = (u64)(quiet < RUN_LONG_NS ? ran : quiet) / RUN_SHARE;
	if (every < RUN_EVERY_NS)
		every = RUN_EVERY_NS;
	if (every > RUN_SELDOM_NS)
		every = RUN_SELDOM_NS;
	if ((s64)(now - runs->last_ns) < every)
		return false;
	return quiet >= RUN_LONG_NS || seldom_may(runs->busy_ns, now);
}

struct run_find {
	struct run_scratch *s;
	u64 interrupted;
	u32 at;
};

static long run_find_step(u32 i, struct run_find *f)
{
	f->at = i;
	return f->s->ip[i & (RUN_DEPTH - 1)] == f->interrupted;
}

/*
 * The kernel's stack of current from where it was interrupted on. What is found before is of the
 * interrupt. Not found: the innermost frame alone.
 */
static __always_inline void run_kernel_stack(void *ctx, struct cpu_state *me, u32 cpu, u64 interrupted, u64 *ip)
{
	struct run_scratch *s = bpf_map_lookup_elem(&run_scratch, &cpu);
	struct run_find f = {.s = s, .interrupted = interrupted};
	long size;

	ip[0] = interrupted;
	if (!s)
		return;
	size = bpf_get_stack(ctx, s->ip, sizeof(s->ip), 0);
	if (size > 0)
		bpf_loop(size / sizeof(u64), run_find_step, &f, 0);
	if (size <= 0 || s->ip[f.at & (RUN_DEPTH - 1)] != interrupted) {
		me->runs.broken++;
		return;
	}
#pragma unroll
	for (int i = 1; i < RUN_FRAMES; i++) {
		u32 at = f.at + i;

		ip[i] = at < size / sizeof(u64) ? s->ip[at & (RUN_DEPTH - 1)] : 0;
	}
}

/*
 * The interrupt of a timer, such as the tick, has interrupted current, which has had this CPU for
 * long: where it is, in the kernel or else in user space. No timer is made for it, so that nothing
 * wakes up an idle CPU. A function of its own: few timers need it.
 */
static __noinline int record_run_stack(void *ctx, struct task_struct *current, struct cpu_state *me, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 base = percpu_base(current, &me->percpu, cpu);
	u64 ip[RUN_FRAMES] = {};
	u64 interrupted = interrupted_ip(base);
	u16 kind = STACK_KERNEL;
	struct record r;

	/* A softirq that was interrupted is none of its own work. */
	if (record_shed(REC_RUN) || running_in(current, base) != IN_HARDIRQ || interrupts_softirq(current, base))
		return 0;
	me->runs.last_ns = now;
	if (now - me->served_ns < RUN_LONG_NS)
		seldom_taken(&me->runs.busy_ns, now);
	if (!interrupted) {
		me->runs.broken++;
		return 0;
	}
	if ((s64)interrupted < 0) {
		run_kernel_stack(ctx, me, cpu, interrupted, ip);
	} else {
		kind = STACK_USER;
		if (bpf_get_stack(ctx, ip, STACK_FRAMES * sizeof(*ip), BPF_F_USER_STACK) <= 0)
			ip[0] = interrupted;
	}
	record_head(&r, REC_RUN, cpu, current->pid, now);
	stack_fill(&r, kind, current->tgid, ip);
	record(ctx, &r);
	if (ip[STACK_FRAMES]) {
		stack_fill(&r, STACK_OUTER, current->tgid, ip + STACK_FRAMES);
		record(ctx, &r);
	}
	me->runs.taken++;
	me->runs.taken_ns += bpf_ktime_get_ns() - now;
	return 0;
}

#endif
