/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Globs over names of tasks. */
#ifndef TAILCAM_GLOB_H
#define TAILCAM_GLOB_H

#include "abi/rule.h"
#include "lib/core_fixes.h"
#include "lib/state.h"

/* Patterns of names, two generations; written by the daemon before it flips generation. Fixed size. */
MAP(globs, ARRAY, 0, 2 * MAX_GLOBS, u32, struct glob);

/* A glob on its way through a name. */
struct glob_walk {
	char pattern[TASK_COMM_LEN] __attribute__((aligned(8)));
	char text[TASK_COMM_LEN];
	u32 p, t;	  /* where we are */
	u32 star, resume; /* the last *, and the text position to retry from; star 16: none */
	u32 result;
};

/* One step of matching * and ?, with the last * as the only slot to go back to. */
static long glob_step(u32 i, struct glob_walk **arg)
{
	struct glob_walk *w = *arg;
	char p = w->p < TASK_COMM_LEN ? w->pattern[w->p & (TASK_COMM_LEN - 1)] : 0;
	char t = w->t < TASK_COMM_LEN ? w->text[w->t & (TASK_COMM_LEN - 1)] : 0;

	if (p == '*') {
		w->star = w->p++;
		w->resume = w->t;
		return 0;
	}
	if (!t) {
		w->result = !p;
		return 1;
	}
	if (p && (p == '?' || p == t)) {
		w->p++;
		w->t++;
		return 0;
	}
	if (w->star == TASK_COMM_LEN)
		return 1;
	w->p = w->star + 1;
	w->t = ++w->resume;
	return 0;
}

struct globs_walk {
	struct glob_walk *one;
	u32 base;
	u32 found;
};

static long globs_step(u32 i, struct globs_walk *w)
{
	u32 index = w->base + i;
	struct glob *g = bpf_map_lookup_elem(&globs, &index);
	struct glob_walk *one = w->one;
	LOOP_RESULTS(go_on, stop);

	if (!g)
		return stop;
	((u64 *)one->pattern)[0] = ((u64 *)g->pattern)[0];
	((u64 *)one->pattern)[1] = ((u64 *)g->pattern)[1];
	one->p = one->t = one->resume = one->result = 0;
	one->star = TASK_COMM_LEN;
	bpf_loop(TASK_COMM_LEN * TASK_COMM_LEN * 2, glob_step, &one, 0);
	if (!one->result)
		return go_on;
	w->found = 1;
	return stop;
}

#endif
