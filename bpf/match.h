/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Past the floor: which rules want this outlier. All conditions are decided
 * here, but for those on a cgroup, device or handler that the daemon has not
 * seen yet: then the answer is UNKNOWN, the daemon decides, and teaches the verdict.
 */
#ifndef TAILCAM_MATCH_H
#define TAILCAM_MATCH_H

#include "burst.h"
#include "glob.h"
#include "ratchet.h"
#include "state.h"

enum decision {
	NO = 0,
	YES = 1,
	UNKNOWN = 2,
};

/* A glob on its way through the key of a span. */
struct key_walk {
	u64 pattern[SPAN_KEY_LEN / 8];
	u32 p, t;	  /* where we are */
	u32 star, resume; /* the last *, and the text position to retry from; star SPAN_KEY_LEN: none */
	u32 result;
	u32 _pad;
};

/* What conditions are held against. */
struct facts {
	u64 cgroup_id;
	u32 pid, tid, uid;
	u32 dev;
	s32 syscall;
	u8 op, state, thread, preempted; /* one bit each, but preempted: 0 or 1 */
	u32 generation;
	u64 sector;
	u64 handler; /* hash of an interrupt handler's name */
	u32 irq, cpu;
	u32 vector, phase; /* one bit each; chain: a bit of each vector on its way */
	u8 from, end;	   /* chain: one bit each, or two of from */
	char comm[TASK_COMM_LEN];
	struct glob_walk glob; /* here, as calls nest too deep for the kernel's stack */
	/* From here on of spans only, and not cleared with the rest. */
	u64 key[SPAN_KEY_LEN / 8 + 1]; /* text */
	struct key_walk key_walk;
};

#define CLEARED_FACTS __builtin_offsetof(struct facts, key)

/* ------------------------------------------------------------- comm globs */

static __always_inline bool comm_in(struct facts *f, struct glob_range range)
{
	struct globs_walk w = {
		.one = &f->glob,
		.base = (f->generation & 1) * MAX_GLOBS + range.first,
	};

	__builtin_memcpy(f->glob.text, f->comm, TASK_COMM_LEN);
	bpf_loop(range.count, globs_step, &w, 0);
	return w.found;
}

#include "match_key.h"

/* --------------------------------------------------------- sets, verdicts */

static __always_inline bool set_has(u32 set, u32 value)
{
	struct set_key key = {.set = set, .value = value};

	return bpf_map_lookup_elem(&sets, &key);
}

/* Bits of the cgroup or device conditions that hold; *known: the daemon has said so. */
static __always_inline u64 verdict(const struct facts *f, u32 kind, u64 id, bool *known)
{
	struct verdict_key key = {.id = id, .kind = kind, .generation = f->generation};
	u64 *bits = bpf_map_lookup_elem(&verdicts, &key);

	*known = bits;
	return bits ? *bits : 0;
}

/*
 * Whether all conditions of m hold for f. Bits of match_field that could not
 * be decided are added to *undecided. Certain conditions come first, so that
 * UNKNOWN is only said of what would match otherwise.
 */
__noinline int match(const struct conditions *m, struct facts *f, u32 *undecided)
{
	u32 want;
	u32 unknown = 0;
	bool known;
	u64 bits;

	if (!m || !f || !undecided)
		return NO;
	want = m->fields;
	if (!want)
		return YES;
	if ((want & MATCH_THREAD) && !(m->threads & f->thread))
		return NO;
	if ((want & MATCH_STATE) && !(m->states & f->state))
		return NO;
	if ((want & MATCH_OP) && !(m->ops & f->op))
		return NO;
	if ((want & MATCH_PREEMPTED) && m->preempted != f->preempted)
		return NO;
	if ((want & MATCH_FROM) && !(m->from & f->from))
		return NO;
	if ((want & MATCH_END) && !(m->ends & f->end))
		return NO;
	if ((want & MATCH_SECTOR) && (f->sector < m->first_sector || f->sector > m->last_sector))
		return NO;
	if ((want & MATCH_SYSCALL) && !set_has(m->syscall_set, f->syscall))
		return NO;
	if ((want & MATCH_NOT_SYSCALL) && set_has(m->not_syscall_set, f->syscall))
		return NO;
	if ((want & MATCH_PID) && !set_has(m->pid_set, f->pid))
		return NO;
	if ((want & MATCH_NOT_PID) && set_has(m->not_pid_set, f->pid))
		return NO;
	if ((want & MATCH_TID) && !set_has(m->tid_set, f->tid))
		return NO;
	if ((want & MATCH_NOT_TID) && set_has(m->not_tid_set, f->tid))
		return NO;
	if ((want & MATCH_UID) && !set_has(m->uid_set, f->uid))
		return NO;
	if ((want & MATCH_NOT_UID) && set_has(m->not_uid_set, f->uid))
		return NO;
	if ((want & MATCH_VECTOR) && !(m->vectors & f->vector))
		return NO;
	if ((want & MATCH_PHASE) && !(m->phases & f->phase))
		return NO;
	if ((want & MATCH_IRQ) && !set_has(m->irq_set, f->irq))
		return NO;
	if ((want & MATCH_NOT_IRQ) && set_has(m->not_irq_set, f->irq))
		return NO;
	if ((want & MATCH_CPU) && !set_has(m->cpu_set, f->cpu))
		return NO;
	if ((want & MATCH_NOT_CPU) && set_has(m->not_cpu_set, f->cpu))
		return NO;
	if ((want & MATCH_COMM) && !comm_in(f, m->comm))
		return NO;
	if ((want & MATCH_NOT_COMM) && comm_in(f, m->not_comm))
		return NO;
	if ((want & MATCH_KEY) && !key_in(f, m->key))
		return NO;
	if ((want & MATCH_NOT_KEY) && key_in(f, m->not_key))
		return NO;
	if (want & (MATCH_CGROUP | MATCH_NOT_CGROUP)) {
		bits = verdict(f, VERDICT_CGROUP, f->cgroup_id, &known);
		if (!known)
			unknown |= want & (MATCH_CGROUP | MATCH_NOT_CGROUP);
		else if ((want & MATCH_CGROUP) && !(bits & m->cgroups))
			return NO;
		else if ((want & MATCH_NOT_CGROUP) && (bits & m->not_cgroups))
			return NO;
	}
	if (want & (MATCH_DEVICE | MATCH_NOT_DEVICE)) {
		bits = verdict(f, VERDICT_DEVICE, f->dev, &known);
		if (!known)
			unknown |= want & (MATCH_DEVICE | MATCH_NOT_DEVICE);
		else if ((want & MATCH_DEVICE) && !(bits & m->devices))
			return NO;
		else if ((want & MATCH_NOT_DEVICE) && (bits & m->not_devices))
			return NO;
	}
	if (want & (MATCH_HANDLER | MATCH_NOT_HANDLER)) {
		bits = verdict(f, VERDICT_HANDLER, f->handler, &known);
		if (!known)
			unknown |= want & (MATCH_HANDLER | MATCH_NOT_HANDLER);
		else if ((want & MATCH_HANDLER) && !(bits & m->handlers))
			return NO;
		else if ((want & MATCH_NOT_HANDLER) && (bits & m->not_handlers))
			return NO;
	}
	if (!unknown)
		return YES;
	*undecided |= unknown;
	return UNKNOWN;
}

/* ------------------------------------------------------------------ rules */

/* A rule that wants the outlier. */
struct fired {
	u32 rule; /* place in map rules */
	u32 undecided;
	u64 threshold_ns; /* or the timeout */
	u8 cause;
	u8 id;
	u8 _pad[6];
};

/* Where an outlier is made, one a CPU and tracker; also the list of who wants it. */
struct scratch {
	struct outlier out;
	struct facts facts;
	struct fired fired[MAX_RULES];
	u32 fired_count;
	u32 wants_kernel, wants_user, wants_progress;
	u32 tick;      /* the work is still pending */
	u64 timed_out; /* rules that have fired for it by timeout, by id */
	u64 seen_ns;   /* tick: its age when it looked last; 0: never */
	u64 due_ns;    /* tick: the age at which something may fire next */
	u64 claimed;   /* tick: rules whose firing counts, by id */
	u64 delay_ns;
	/* of the rule in hand */
	u32 undecided;
	u32 override_base;
	u32 adaptive; /* the threshold that applies is moved by the daemon */
	u64 threshold_ns;
	u64 timeout_ns;
	struct {
		u32 base, override_base; /* in the tables of rules with histograms, of overrides */
		u32 number;		 /* of the histogram to count in */
		u32 cpu;
		u64 now;
		u64 delay;
	} histogram;
};

/* Scratches of a CPU: one a tracker, as their contexts may interrupt each other, and one of the tick. */
#define SCRATCH_TICK TRACKERS
#define SCRATCHES (TRACKERS + 1)

/* One element a CPU and scratch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct rules_walk {
	struct scratch *s;
	u32 base;
};

static long override_step(u32 i, struct rules_walk *w)
{
	struct scratch *s = w->s;
	u32 at = s->override_base + i;
	struct override *o = bpf_map_lookup_elem(&overrides, &at);
	long go_on = 0, stop = 1;
	int decision;

	/* See globs_step. */
	barrier_var(go_on);
	barrier_var(stop);
	if (!o)
		return stop;
	decision = match(&o->when, &s->facts, &s->undecided);
	if (decision == NO)
		return go_on;
	/* UNKNOWN: the daemon decides which threshold it is, so any delay will do */
	s->threshold_ns = decision == YES ? o->threshold_ns : 0;
	s->adaptive = decision == YES && o->adaptive;
	if (decision == YES || o->timeout_ns < s->timeout_ns)
		s->timeout_ns = o->timeout_ns;
	return stop;
}

/*
 * Whether a rule's timeout fires for work of this age, and when it may next.
 * What the daemon must decide is asked again after a while, less and less often.
 */
static __always_inline bool timeout_fires(struct scratch *s, const struct rule *r)
{
	u64 over = s->delay_ns - s->timeout_ns;
	u64 next = s->timeout_ns;
	bool fires = false;

	if ((s64)s->timeout_ns == (s64)NEVER)
		return false;
	if (s->delay_ns >= s->timeout_ns) {
		if (s->undecided) {
			next = s->delay_ns + over / 2 + 1;
			fires = true;
		} else {
			next = NEVER;
			fires = !(s->timed_out >> (r->id & 63) & 1);
			if (r->repeat_ns) {
				u64 n = over / r->repeat_ns;

				next = s->timeout_ns + (n + 1) * r->repeat_ns;
				if (s->seen_ns < s->timeout_ns + n * r->repeat_ns)
					fires = true;
			}
		}
	}
	if (next < s->due_ns)
		s->due_ns = next;
	return fires;
}

/* Why the rule in hand fires: a cause, or -1. */
static __always_inline s32 rule_fires(struct scratch *s, const struct rule *r)
{
	if (s->tick)
		return timeout_fires(s, r) ? CAUSE_TIMEOUT : -1;
	if (s->timed_out >> (r->id & 63) & 1)
		return CAUSE_AFTER_TIMEOUT;
	return s->delay_ns >= s->threshold_ns ? CAUSE_THRESHOLD : -1;
}

static long rule_step(u32 i, struct rules_walk *w)
{
	struct scratch *s = w->s;
	u32 at = w->base + i;
	s32 cause;
	u32 n, id;
	struct rule *r = bpf_map_lookup_elem(&rules, &at);
	struct rule_state *state;
	bool ratchet;

	if (!r)
		return 1;
	if (r->paused)
		return 0;
	s->undecided = 0;
	if (match(&r->when, &s->facts, &s->undecided) == NO)
		return 0;
	s->threshold_ns = r->threshold_ns;
	s->adaptive = r->adaptive;
	s->timeout_ns = r->timeout_ns;
	if (r->overrides) {
		s->override_base = (s->facts.generation & 1) * MAX_OVERRIDES + r->first_override;
		bpf_loop(r->overrides, override_step, w, 0);
	}
	cause = rule_fires(s, r);
	if (cause < 0)
		return 0;
	id = r->id;
	state = bpf_map_lookup_elem(&rule_states, &id);
	if (!state)
		return 0;
	ratchet = cause == CAUSE_THRESHOLD && r->ratchet;
	if (cause == CAUSE_THRESHOLD && s->adaptive && !s->undecided &&
	    !burst_allows(state, s->out.time_ns, s->delay_ns))
		return 0;
	if (ratchet && !ratchet_may_claim(state, s->delay_ns))
		return 0;
	if (!rate_allows(state, s->out.time_ns, s->undecided))
		return 0;
	if (ratchet && !s->undecided && !ratchet_claim(state, s->delay_ns))
		return 0;
	n = s->fired_count;
	if (n >= MAX_RULES)
		return 1;
	s->fired[n].rule = at;
	s->fired[n].undecided = s->undecided;
	s->fired[n].threshold_ns = cause == CAUSE_THRESHOLD ? s->threshold_ns : s->timeout_ns;
	s->fired[n].cause = cause;
	s->fired[n].id = r->id & 63;
	s->fired_count = n + 1;
	s->wants_kernel |= r->kernel_stack;
	s->wants_user |= r->user_stack;
	s->wants_progress |= r->progress;
	return 0;
}

/* Holds s->facts after delay to count rules from place base on. */
static __always_inline u32 evaluate_range(struct scratch *s, u32 base, u32 count, u64 delay)
{
	struct rules_walk w = {.s = s, .base = base};

	s->fired_count = s->wants_kernel = s->wants_user = s->wants_progress = 0;
	s->delay_ns = delay;
	s->due_ns = NEVER;
	bpf_loop(count, rule_step, &w, 0);
	return s->fired_count;
}

/* Fills s->fired with the rules that want s->facts after delay; how many. */
static __always_inline u32 evaluate(struct scratch *s, u32 tracker, u64 delay)
{
	u32 half = s->facts.generation & 1;

	barrier_var(tracker);
	if (tracker >= TRACKERS)
		return 0;
	return evaluate_range(s, half * MAX_RULES + tables[half].first[tracker], tables[half].count[tracker], delay);
}

#endif
