/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Past the floor: which rules want this outlier, and why. */
#ifndef TAILCAM_RULES_H
#define TAILCAM_RULES_H

#include "lib/core_fixes.h"
#include "lib/limit.h"
#include "lib/match.h"
#include "lib/state.h"

/* Where each generation's rules of a tracker stand in the rule table; written by the daemon. */
volatile struct rule_table tables[2];

/* Rules, two generations; written by the daemon, which also moves thresholds of the current one. Fixed size. */
MAP(rules, ARRAY, BPF_F_MMAPABLE, 2 * MAX_RULES, u32, struct rule);

/* Their overrides, in the same way. */
MAP(overrides, ARRAY, BPF_F_MMAPABLE, 2 * MAX_OVERRIDES, u32, struct override);

/* What each rule has done, by rule.id, across generations; written here, read by the daemon. Fixed size. */
MAP(rule_states, ARRAY, BPF_F_MMAPABLE, MAX_RULES, u32, struct rule_state);

/* A rule that wants the outlier. */
struct fired {
	u32 rule; /* slot in map rules */
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
	u64 seen_ns;   /* tick: its age at the last scan; 0: never */
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

/* SCRATCHES a CPU; written by that CPU. Sized by the daemon. */
MAP(scratches, ARRAY, 0, 1, u32, struct scratch);

struct rules_walk {
	struct scratch *s;
	u32 base;
};

static long override_step(u32 i, struct rules_walk *w)
{
	struct scratch *s = w->s;
	u32 index = s->override_base + i;
	struct override *o = bpf_map_lookup_elem(&overrides, &index);
	int decision;
	LOOP_RESULTS(go_on, stop);

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
	u32 index = w->base + i;
	s32 cause;
	u32 n, id;
	struct rule *r = bpf_map_lookup_elem(&rules, &index);
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
	s->fired[n].rule = index;
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

/* Holds s->facts after delay to count rules from slot base on. */
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
