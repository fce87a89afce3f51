/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the span tracker is told and what it keeps. Belongs to state.h. */
#ifndef TAILCAM_SPAN_STATE_H
#define TAILCAM_SPAN_STATE_H

const volatile bool track_span;
const volatile u32 span_mask;	    /* buckets, less one: at least one */
const volatile u64 span_seed;	    /* a secret: nobody can tell where a key of another user stands */
const volatile u32 span_share;	    /* places that one owner may have */
const volatile u32 span_owner_mask; /* buckets of owners, less one: at least one */

volatile u64 floor_span;
volatile u64 timeout_span;

/* Pending table: claimed and released by any CPU. Sized by tracker. */
ARRAY_MAP(span_keys, struct bucket);
ARRAY_MAP(span_slots, struct span_slot);

/*
 * Whose spans are counted together (span_owner.h): keys in buckets, and at each
 * place how many there are. Twice as many places as spans. Sized by tracker.
 */
ARRAY_MAP(span_owner_keys, struct bucket);
ARRAY_MAP(span_owner_counts, u64);

/* Patterns of keys, two generations; written by the daemon before it flips generation. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_KEY_GLOBS);
	__type(key, u32);
	__type(value, struct key_glob);
} key_globs SEC(".maps");

#endif
