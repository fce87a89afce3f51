/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Histograms, and the rules that have one. */
#ifndef TAILCAM_ABI_HISTOGRAM_H
#define TAILCAM_ABI_HISTOGRAM_H

#include <linux/types.h>

#include "abi/tracker.h"

/*
 * Bucket 0 is for 0 ns. Each power of two has 8 others, which end at 2^(n/8) s:
 * those of Prometheus's native histograms of schema 3. There is none for 2^63 ns
 * and more. tracker/histogram says which (Index, Bounds).
 */
enum histogram_size {
	HISTOGRAM_BUCKETS = 506,
};

/* One CPU's part of a histogram. The number of values is the sum of the buckets. */
struct histogram {
	__u64 bucket[HISTOGRAM_BUCKETS];
	__u64 sum;
	__u64 max;
	__u64 not_min;	 /* the complement of the least value; 0: empty */
	__u64 undecided; /* of a rule: delays that it may have wanted, but the daemon must say first */
	__u64 _pad[2];
};

/* What the classes of a rule's histogram are. */
enum histogram_by {
	BY_NOTHING = 0,
	BY_DEVICE = 1,
	BY_SYSCALL = 2,
	BY_CGROUP = 3,
	BY_OVERRIDE = 4,
};

/* A rule with a histogram. Conditions that cost little to decide are in here; 0: it has none of the kind. */
struct histogram_rule {
	__u32 rule;	  /* index in the rule table */
	__u32 own;	  /* number of the histogram of what is in no class */
	__u32 classes;	  /* number of the first class's histogram; a multiple of 16 */
	__u32 class_mask; /* buckets of class keys, less one */
	__u32 rest;	  /* conditions that only match() decides */
	__u8 by;
	__u8 threads, states, ops;
	__u8 preempted;	 /* bit 0: waits that did not begin with a preemption; bit 1: that did */
	__u8 some_calls; /* only what is in certain system calls */
	__u8 no_call;	 /* some_calls: also what is in no call at all */
	__u8 _pad[5];
	__u64 calls[SYSCALLS / 64];
};

/* What rules with histograms must know of an event. */
enum histogram_need {
	NEED_TASK = 1 << 0, /* comm, user */
	NEED_CGROUP = 1 << 1,
	NEED_CALL = 1 << 2, /* that the task sleeps in */
	NEED_DEVICE = 1 << 3,
	NEED_NAME = 1 << 4, /* name of an interrupt handler */
};

/* Where those of one generation stand. */
struct histogram_table {
	__u32 first[TRACKERS];
	__u32 count[TRACKERS];
	__u32 needs[TRACKERS];
};

/* Argument of the program histogram_bucket. */
struct bucket_of {
	__u64 value;
};

#endif
