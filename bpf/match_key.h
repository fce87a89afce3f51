/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Globs over the keys of spans: as those over names of tasks in match.h, for longer text. Belongs to match.h. */
#ifndef TAILCAM_MATCH_KEY_H
#define TAILCAM_MATCH_KEY_H

static long key_step(u32 i, struct facts **at)
{
	struct facts *f = *at;
	struct key_walk *w = &f->key_walk;
	u32 pi = w->p, ti = w->t;
	char p = 0, t = 0;
	long go_on = 0, stop = 1;

	barrier_var(go_on); /* see globs_step */
	barrier_var(stop);
	barrier_var(pi);
	barrier_var(ti);
	if (pi < SPAN_KEY_LEN)
		p = ((char *)w->pattern)[pi & (SPAN_KEY_LEN - 1)];
	if (ti < SPAN_KEY_LEN)
		t = ((char *)f->key)[ti & (SPAN_KEY_LEN - 1)];
	if (p == '*') {
		w->star = w->p++;
		w->resume = w->t;
		return go_on;
	}
	if (!t) {
		w->result = !p;
		return stop;
	}
	if (p && (p == '?' || p == t)) {
		w->p++;
		w->t++;
		return go_on;
	}
	if (w->star == SPAN_KEY_LEN)
		return stop;
	w->p = w->star + 1;
	w->t = ++w->resume;
	return go_on;
}

struct keys_walk {
	struct facts *f;
	u32 base;
	u32 found;
};

static long keys_step(u32 i, struct keys_walk *w)
{
	u32 at = w->base + i;
	struct key_glob *g = bpf_map_lookup_elem(&key_globs, &at);
	struct facts *f = w->f;
	long go_on = 0, stop = 1;

	barrier_var(go_on);
	barrier_var(stop);
	if (!g)
		return stop;
#pragma unroll
	for (int k = 0; k < SPAN_KEY_LEN / 8; k++) /* in words: bytes would all be on the stack at once */
		f->key_walk.pattern[k] = ((volatile u64 *)g->pattern)[k];
	f->key_walk.p = f->key_walk.t = f->key_walk.resume = f->key_walk.result = 0;
	f->key_walk.star = SPAN_KEY_LEN;
	bpf_loop(SPAN_KEY_LEN * SPAN_KEY_LEN * 2, key_step, &f, 0);
	if (!f->key_walk.result)
		return go_on;
	w->found = 1;
	return stop;
}

static __always_inline bool key_in(struct facts *f, struct glob_range range)
{
	struct keys_walk w = {
		.f = f,
		.base = (f->generation & 1) * MAX_KEY_GLOBS + range.first,
	};

	bpf_loop(range.count, keys_step, &w, 0);
	return w.found;
}

#endif
