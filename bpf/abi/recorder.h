/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The recorder's rings, and its switch. */
#ifndef TAILCAM_ABI_RECORDER_H
#define TAILCAM_ABI_RECORDER_H

#include <linux/types.h>

enum ring_size {
	RING_PARTS = 16,     /* of a ring of plain memory */
	RING_KEPT = 10,	     /* of these, at most, are pinned for one outlier */
	RING_LIVE = 4,	     /* and as many, at least, never are */
	RING_PART_SHIFT = 8, /* of record_ring.slot */
};

/* The lap of a record in a ring of plain memory, in the record's first eight bytes: where other records have the CPU. */
enum record_lap {
	RECORD_LAP_SHIFT = 16,
	RECORD_LAP_MASK = 0xffff,
};

/*
 * One CPU's ring of the recorder. Backend mmap: records, or pairs of short
 * ones, are numbered from 0; those of one part follow each other in one slot.
 * What each event needs fills one cache line.
 */
struct record_ring {
	__u64 position[2];	/* mmap: begun, and how many second ones of pairs. perf: written into each bank */
	__u64 slot[2];		/* of the parts with this low bit: number << RING_PART_SHIFT | slot */
	__u64 lost;		/* records that found no ring, or were refused by it */
	__u64 pinned;		/* mmap: bit of each slot that is not to be overwritten. perf: short records written */
	__u64 pinned_for;	/* freezes up to which history is pinned */
	__u32 half;		/* mmap: place of the pair that lacks its second one, plus 1; 0: none */
	__u32 half_part;	/* and its part, the low bits */
	__u64 held[RING_PARTS]; /* which part each slot holds, plus 1; 0: none */
};

/* Argument of the program release_bank. */
struct release {
	__u64 freezes; /* of which everything has been read */
};

/* The recorder's switch, alone on its cache line: read at every event. */
struct recorder_state {
	__u32 bank;   /* perf: that is written now */
	__u32 frozen; /* perf: the other one waits for the daemon */
	__u64 frozen_ns;
	__u64 freezes;
	__u64 released; /* mmap: freezes of which the daemon has read the history */
	__u64 _pad[4];
} __attribute__((aligned(64)));

#endif
