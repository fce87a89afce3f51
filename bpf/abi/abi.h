/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The binary interface between the kernel side and Go. Everything that crosses
 * is laid out here and nowhere else. bpf2go turns these types into Go types
 * (package bpf); rules of the layout: naturally aligned, no implicit padding,
 * nanoseconds of CLOCK_MONOTONIC, little endian.
 */
#ifndef TAILCAM_ABI_H
#define TAILCAM_ABI_H

#include <linux/types.h>

#define DISK_NAME_LEN 32
#define HANDLER_NAME_LEN 32

#include "abi/record.h"
#include "abi/span.h"

/* Trackers, in the order of DESIGN.md. Also the index of floors, counters. */
enum tracker_kind {
	TRACK_WAKEUP = 0,
	TRACK_OFFCPU = 1,
	TRACK_SYSCALL = 2,
	TRACK_BLOCK = 3,
	TRACK_IRQ = 4,
	TRACK_SOFTIRQ = 5,
	TRACK_PAIR = 6,
	TRACK_CHAIN = 7,
	TRACK_SPAN = 8,
	TRACKERS = 9,
};

/* Pending tables. */
enum table_kind {
	TABLE_TASKS = 0, /* wakeup, offcpu */
	TABLE_CALLS = 1,
	TABLE_REQUESTS = 2,
	TABLE_PAIRS = 3,
	TABLE_SPANS = 4,
	TABLES = 5,
};

#define SEGMENTS 4 /* of one table: its first, and what it has grown by */

/* How a pending table has grown; written by user space, but for wanted. */
struct growth {
	__u32 segments;		/* beside the first */
	__u32 wanted;		/* the table is crowded, and user space knows */
	__u32 mask[SEGMENTS];	/* buckets less one; of the first: see task_mask and its like */
	__u32 chunks[SEGMENTS]; /* that the tick looks at */
};

#include "abi/outlier.h"
#include "abi/rule.h"

/* -------------------------------------------------------------- histograms */

/*
 * Below 8 ns each value has a bucket; from there on each power of two has 8.
 * tracker/histogram says which (Index, Bounds).
 */
#define HISTOGRAM_BUCKETS 496

/* One CPU's part of a histogram. The number of values is the sum of the buckets. */
struct histogram {
	__u64 bucket[HISTOGRAM_BUCKETS];
	__u64 sum;
	__u64 max;
	__u64 not_min;	 /* the complement of the least value; 0: empty */
	__u64 undecided; /* of a rule: delays that it may have wanted, but the daemon must say first */
	__u64 _pad[12];
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
	__u32 rule;	  /* place in the rule table */
	__u32 own;	  /* number of the histogram of what is in no class */
	__u32 classes;	  /* number of the first class's histogram; a multiple of 16 */
	__u32 class_mask; /* buckets of class keys, less one */
	__u32 rest;	  /* conditions that only match() decides */
	__u8 by;
	__u8 threads, states, ops;
	__u8 preempted;	 /* bit 0: waits that did not begin with a preemption; bit 1: that did */
	__u8 some_calls; /* look into calls */
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
	NEED_HANDLER = 1 << 4, /* name of an interrupt handler */
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

/* Argument of the program ratchet: a delay to claim a record with, or 0 to begin anew. */
struct ratchet_call {
	__u64 delay_ns;
	__u32 id; /* of the rule */
	__u32 _pad;
};

/* Argument of the program forget_thread. */
struct forget {
	__u32 tid;
};

/* ------------------------------------------------------------------- tick */

#define CHUNK_BUCKETS 512 /* looked at together */
#define MAX_CHUNKS 256	  /* of one segment of a table */

/* A part of a pending table. */
struct chunk {
	__u64 due_ns; /* nothing in it can be due before */
	__u32 generation;
	__u32 _pad;
};

/* The tick, and what it has done; written by it alone. */
struct tick_state {
	__u64 ticks;
	__u64 scans; /* of chunks */
	__u64 late;  /* timeouts reported more than LATE_NS after their age */
	__u64 latest_ns;
	__u64 cut; /* ticks that ended before their work, to go on at the next one */
	__u64 next_ns;
	__u64 busy; /* a CPU is at it */
};

/* ---------------------------------------------------------------- recorder */

#define RING_PARTS 16 /* of a ring of plain memory */
#define RING_KEPT 10  /* of these, at most, are pinned for one outlier */
#define RING_LIVE 4   /* and as many, at least, never are */

/*
 * One CPU's ring of the recorder. Backend mmap: records are numbered from 0;
 * those of one part follow each other in one place. What each event needs
 * fills one cache line.
 */
struct record_ring {
	__u64 position[2]; /* mmap: records begun, and 0. perf: written into each bank */
	__u64 place[2];	   /* of the parts with this low bit: number << 8 | place */
	__u64 lost;	   /* records that found no ring, or were refused by it */
	__u64 pinned;	   /* bit of each place that is not to be overwritten */
	__u64 pinned_for;  /* freezes up to which history is pinned */
	__u64 _pad;
	__u64 held[RING_PARTS]; /* which part each place holds, plus 1; 0: none */
};

/* Argument of the program release_bank. */
struct release {
	__u64 freezes; /* of which everything has been read */
};

/* ---------------------------------------------------------------- counters */

#define RUN_HISTORY 256 /* power of two */

/* One CPU's own lines: written by that CPU only, read by all. */
struct cpu_state {
	__u64 seen[TRACKERS];	    /* pairs completed */
	__u64 table_full[TRACKERS]; /* entries lost: window full */
	__u64 replaced[TRACKERS];   /* entries that met a stale slot of their key */
	__u64 switches;		    /* position in ran */
	__u64 unseen;		    /* context switches and wake-ups that the kernel's tracepoints left out */
	__u64 reclaimed;	    /* pending work whose task died */
	__u64 histogram_lost;	    /* delays of a CPU that came after the histograms were made */
	__u64 asked_ns;		    /* when the last question was sent */
	__u64 chain_cut;	    /* branches and softirqs that a chain was not followed to */
	__u64 chain_met;	    /* wake-ups of tasks that were busy with an older chain */
	__u64 chain_ended;	    /* chains ended because of their age */
	__u64 chain_unseen;	    /* chains whose return to user space cannot be seen */
	__u64 later_time_ns;	    /* outlier whose user stack is owed; 0: none */
	__u64 later_sp;		    /* user stack pointer then */
	__u32 later_tid;
	/* What interrupts its tasks now, as WAKER_*; 0: nothing. With the task it runs on top of. */
	__u32 in_irq;
	__u32 in_hrtimer, hrtimer_tid;
	__u32 in_softirq, softirq_tid;
	struct span_losses span;
	__u64 steal_seen;		      /* what the hypervisor had taken when it was last told of */
	__u64 steal_clock;		      /* of the last look at it, */
	__u64 steal_last_ns, steal_before_ns; /* its time, and that of the look before */
	struct ran ran[RUN_HISTORY];
};

#include "abi/pair.h"

#endif
