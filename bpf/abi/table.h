/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Pending tables: their buckets, how they grow, and how the tick divides them. */
#ifndef TAILCAM_ABI_TABLE_H
#define TAILCAM_ABI_TABLE_H

#include <linux/types.h>

/* Pending tables. */
enum table_kind {
	TABLE_TASKS = 0, /* wakeup, offcpu */
	TABLE_CALLS = 1,
	TABLE_REQUESTS = 2,
	TABLE_PAIRS = 3,
	TABLE_SPANS = 4,
	TABLE_WORKS = 5,
	TABLES = 6,
};

enum table_size {
	BUCKET_KEYS = 8,     /* a bucket fills a cache line */
	SEGMENTS = 4,	     /* of one table: its first, and what it has grown by */
	SEGMENT_SHIFT = 28,  /* a slot's index has its segment above */
	CHUNK_BUCKETS = 512, /* scanned together */
	MAX_CHUNKS = 256,    /* of one segment of a table */
};

/* A bucket of a pending table. Key 0: free. */
struct bucket {
	__u64 key[BUCKET_KEYS];
};

/* Which timeouts have fired for the work in a slot. Written by the tick, taken by the exit. */
struct deadline {
	__u64 for_ns;  /* start of the work that the rest is about */
	__u64 fired;   /* bit of each rule's id */
	__u64 due_ns;  /* nothing can fire before */
	__u64 seen_ns; /* when the tick scanned it last */
};

/* How a pending table has grown; written by user space, but for wanted. */
struct growth {
	__u32 segments;		/* beside the first */
	__u32 wanted;		/* the table is crowded, and user space knows */
	__u32 mask[SEGMENTS];	/* buckets less one; of the first: see task_mask and its like */
	__u32 chunks[SEGMENTS]; /* that the tick scans */
};

/* A part of a pending table. */
struct chunk {
	__u64 due_ns;  /* nothing in it can be due before */
	__u64 scan_ns; /* when to look through it: then, or earlier */
	__u32 generation;
	__u32 _pad;
};

/* The daemon looks every second whether the next one needs its timers (see tick.h). */
enum heartbeat {
	LOOK_MS = 1200,	      /* from one look to the next, if that is late */
	LOOKS_FROM_MS = 1800, /* timeouts from which on it can be known so far ahead */
};

/* The tick, and what it has done; written by it alone. */
struct tick_state {
	__u64 ticks;
	__u64 scans; /* of chunks */
	__u64 late;  /* timeouts reported more than LATE_NS after their age */
	__u64 latest_ns;
	__u64 truncated; /* ticks that ended before their work, to go on at the next one */
	__u64 next_ns;
	__u64 busy;	      /* a CPU runs it */
	__u64 soonest_ns;     /* no timeout of a pending table can be due before */
	__u64 scan_ns;	      /* nothing is to be looked through before */
	__u64 so_far_ns;      /* soonest_ns of the chunks that this tick has come to, */
	__u64 scan_so_far_ns; /* and scan_ns */
	__u32 generation;     /* of the rules that these hold for */
	__u32 _pad;
};

/* Pending work that the daemon has found in a table: argument of the programs that free its slot. */
struct stale_slot {
	__u64 start_ns; /* of the work; if other work is there by now, nothing is done */
	__u32 index;
	__u32 _pad;
};

#endif
