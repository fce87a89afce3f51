/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is counted of the page cache of a file, and who removed pages from it. */
#ifndef TAILCAM_ABI_PAGECACHE_H
#define TAILCAM_ABI_PAGECACHE_H

#include "abi/activity.h"

enum pagecache_size {
	PAGECACHE_NAMES = 16384,   /* names that are remembered; the least recently used go */
	PAGECACHE_WAITING = 16384, /* files of which is known which pages nobody has asked for */
	PAGECACHE_DEPTH = 24,	   /* directories above a file that are named */
	PAGECACHE_PATH = 512,	   /* bytes of a path after which no further directory is named */
	PAGECACHE_COMPONENT = 256, /* bytes of one name, with its NUL (NAME_MAX) */
};

/* Which file: an inode number is used again, then with another generation. */
struct pagecache_key {
	__u64 inode;
	__u32 device; /* as the kernel has it: 12 bits of major, 20 of minor */
	__u32 generation;
};

/* Pages, of one file and CPU. */
struct pagecache_counts {
	__u64 lookups;	/* that reads and faults asked for */
	__u64 first;	/* of these: for the first time since they were brought in */
	__u64 added;	/* brought in, by whomever */
	__u64 written;	/* of these: by a write, which dirtied them at once */
	__u64 dirtied;	/* that were clean before */
	__u64 evicted;	/* removed by reclaim, or because somebody asked for it */
	__u64 removed;	/* cut off with a part of the file, or deleted with it */
	__u64 stamp_ns; /* when cached was true; 0: never on this CPU */
	__u64 cached;
	__u64 found; /* what the last removal found cached */
	__u64 batch; /* removed since the kernel last changed its own count of them */
};

/* How pages left. */
enum pagecache_how {
	PAGECACHE_KSWAPD,	  /* background reclaim */
	PAGECACHE_DIRECT_RECLAIM, /* a task that wanted memory, of which the machine was short */
	PAGECACHE_CGROUP_RECLAIM, /* at the limit of a cgroup, or as its memory.reclaim asked */
	PAGECACHE_PAGEOUT,	  /* of chosen pages: DAMON, MADV_PAGEOUT */
	PAGECACHE_INVALIDATE,	  /* posix_fadvise, drop_caches, direct I/O, unmounting */
	PAGECACHE_TRUNCATE,
	PAGECACHE_UNLINK, /* the file had no name any more */
	PAGECACHE_HOWS,
};

/* Whose pages were removed by whom. */
struct pagecache_removal {
	struct pagecache_key file;
	__u64 cgroup; /* id, v2, of who removed them */
	__u64 owner; /* id, in the hierarchy of the memory controller, of the cgroup that they were charged to; 0: not known */
	__u32 pid;
	__u32 how; /* enum pagecache_how */
	char comm[16];
	struct activity_reference by; /* whose token the thread carried; serial 0: none */
};

enum pagecache_whole {
	PAGECACHE_WHOLE = 1, /* up to the root of the file system */
	PAGECACHE_DISK = 2,  /* no path: a block device, whose number is the inode's */
};

/* A path from its end: names with a NUL after each. None: it is known to have none. */
struct pagecache_name {
	__u32 bytes;
	__u32 whole; /* enum pagecache_whole; 0: its end alone */
	char text[PAGECACHE_PATH + PAGECACHE_COMPONENT];
};

#endif
