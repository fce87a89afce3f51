/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What both objects know of declared pairs: the main one, whose tick looks for
 * timeouts, and those made from pair.bpf.c, one a hook. The second kind is
 * loaded with the maps and the live variables of the first.
 */
#ifndef TAILCAM_PAIR_STATE_H
#define TAILCAM_PAIR_STATE_H

/* Buckets of the pending table, less one: at least one, so that a window has two. */
const volatile u32 pair_mask;

/* By number of the pair. */
volatile u64 floor_pair[MAX_PAIRS];
volatile u64 timeout_pair[MAX_PAIRS];
volatile u32 pair_rules[2][MAX_PAIRS]; /* each generation's place in the rule table, or NO_RULE */

volatile u32 pair_histograms[2][MAX_PAIRS]; /* the same in the table of rules with histograms */

ARRAY_MAP(pair_keys, struct bucket);
ARRAY_MAP(pair_slots, struct pair_slot);
ARRAY_MAP(pair_states, struct pair_state); /* MAX_PAIRS elements a possible CPU */

#endif
