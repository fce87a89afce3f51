/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Activities: what a process that takes part shares with the kernel side.
 *
 * Each such process has two arrays, with the same things at the same indexes: `shared`,
 * which it maps and writes, and `accounts`, which the kernel side alone writes. Index 0 is
 * a header; [1, 1 + threads) are slots of threads; [1 + threads, 1 + threads + tokens)
 * are tokens. After them `shared` has the attributes of tokens. Nothing in `shared` is
 * believed beyond its own process.
 */
#ifndef TAILCAM_ABI_ACTIVITY_H
#define TAILCAM_ABI_ACTIVITY_H

#include <linux/types.h>

enum activity_limits {
	ACTIVITY_ABI = 1, /* changes when a client would misread what follows */
	ACTIVITY_PROCESSES = 1024,
	ACTIVITY_SHARED_BYTES = 128,	/* of an element */
	ACTIVITY_ACCOUNT_BYTES = 512,	/* of an element */
	ACTIVITY_THREAD_WINDOW = 8,	/* slots from its home on in which a thread may be */
	ACTIVITY_DEFAULT_THREADS = 256, /* a power of two */
	ACTIVITY_MAX_THREADS = 4096,
	ACTIVITY_DEFAULT_TOKENS = 1024,
	ACTIVITY_MAX_TOKENS = 131072,
	ACTIVITY_NAME_LEN = 32,
	ACTIVITY_TEXT_LEN = 16,
	ACTIVITY_WORDS = 63,
	ACTIVITY_ATTRIBUTES = 256,     /* different ones of a process */
	ACTIVITY_TOKEN_ATTRIBUTES = 4, /* of one token */
	ACTIVITY_KEY_LEN = 32,
	ACTIVITY_ATTRIBUTE_LEN = 92,
};

/* Home of a thread: tid * ACTIVITY_HASH >> (32 - log2(threads)), of 32 bits. */
enum activity_hash {
	ACTIVITY_HASH = 0x9E3779B1,
};

enum activity_flags {
	ACTIVITY_INHERIT = 1 << 0, /* new threads and processes carry the token of whoever made them */
	ACTIVITY_DECLARED =
		1 << 1, /* of the kernel side's table alone: programs whose rules begin and end activities */
};

/* The groups of `activities.groups`, as bits. ACTIVITY_GROUP_SCHEDULER is always on. */
enum activity_group {
	ACTIVITY_GROUP_SCHEDULER = 1 << 0,
	ACTIVITY_GROUP_BLOCK = 1 << 1,
	ACTIVITY_GROUP_PAGECACHE = 1 << 2,
	ACTIVITY_GROUP_NETWORK = 1 << 3,
	ACTIVITY_GROUP_MEMORY = 1 << 4,
	ACTIVITY_GROUP_WORKQUEUES = 1 << 5,
	ACTIVITY_GROUP_SYSCALLS = 1 << 6,
	ACTIVITY_GROUP_HARDWARE = 1 << 7,
	ACTIVITY_GROUP_INTERRUPTS = 1 << 8,
	ACTIVITY_GROUP_LOCKS = 1 << 9,
};

/*
 * What an account holds. Of nanoseconds the name ends in NS; all else counts. The parts of
 * RUNNABLE_NS and of BLOCKED_NS add up to it. Only added to at the end.
 */
enum activity_value {
	ACTIVITY_CPU_NS, /* as the thread's own clock has it, up to the last switch-out; what threads add at a switch of tokens is in `shared` */
	ACTIVITY_CPU_KERNEL_NS, /* of it, in system calls and page faults that have ended */
	ACTIVITY_RUNNABLE_NS,
	ACTIVITY_RUNNABLE_PREEMPTED_NS,
	ACTIVITY_RUNNABLE_WOKEN_NS,
	ACTIVITY_RUNNABLE_THROTTLED_NS,
	ACTIVITY_BLOCKED_NS,
	ACTIVITY_BLOCKED_DISK_NS,
	ACTIVITY_BLOCKED_LOCK_NS,
	ACTIVITY_BLOCKED_NETWORK_NS,
	ACTIVITY_BLOCKED_TASK_NS,
	ACTIVITY_BLOCKED_TIMER_NS,
	ACTIVITY_BLOCKED_FAULT_NS,
	ACTIVITY_BLOCKED_RECLAIM_NS,
	ACTIVITY_BLOCKED_WORK_NS,
	ACTIVITY_BLOCKED_OTHER_NS,
	ACTIVITY_SWITCHES,
	ACTIVITY_PREEMPTIONS,
	ACTIVITY_WAKEUPS, /* made by it */
	ACTIVITY_SYSCALLS,
	ACTIVITY_SYSCALL_NS,
	ACTIVITY_FAULTS_MINOR,
	ACTIVITY_FAULTS_MAJOR,
	ACTIVITY_FAULT_NS,
	ACTIVITY_CACHE_HITS, /* pages */
	ACTIVITY_CACHE_MISSES,
	ACTIVITY_BLOCK_REQUESTS,
	ACTIVITY_BLOCK_BYTES,
	ACTIVITY_BLOCK_QUEUE_NS,
	ACTIVITY_BLOCK_DEVICE_NS,
	ACTIVITY_TCP_BYTES_SENT,
	ACTIVITY_TCP_BYTES_RECEIVED,
	ACTIVITY_TCP_SEGMENTS,
	ACTIVITY_TCP_RETRANSMITS,
	ACTIVITY_NETWORK_NS, /* of ACTIVITY_CPU_KERNEL_NS, in calls that send and receive */
	ACTIVITY_MEMORY_BYTES,
	ACTIVITY_WORK_ITEMS, /* queued by it */
	ACTIVITY_WORK_NS,    /* their CPU */
	ACTIVITY_WORK_BLOCKED_NS,
	ACTIVITY_WRITEBACK_BYTES,
	ACTIVITY_EVICTED_PAGES, /* that it brought in, and others evicted */
	ACTIVITY_EVICTS_PAGES,	/* that it evicted, and others or nobody brought in */
	ACTIVITY_CYCLES,
	ACTIVITY_INSTRUCTIONS,
	ACTIVITY_CACHE_MISSES_HW,
	ACTIVITY_RUNNABLE_STOLEN_NS,	 /* of ACTIVITY_RUNNABLE_NS: its own clock stood, and no switch was seen */
	ACTIVITY_BLOCKED_KERNEL_LOCK_NS, /* of ACTIVITY_BLOCKED_NS: in a lock of the kernel, not of user space */
	ACTIVITY_KERNEL_LOCKS,		 /* how often it had to wait for one */
	ACTIVITY_KERNEL_LOCK_MUTEX_NS,	 /* and how long, spinning or asleep */
	ACTIVITY_KERNEL_LOCK_RWSEM_NS,
	ACTIVITY_KERNEL_LOCK_SPIN_NS,
	ACTIVITY_KERNEL_LOCK_RTMUTEX_NS,
	ACTIVITY_VALUES,
};

/* ------------------------------------------------- written by the process */

/* Which token a thread carries. */
struct activity_half {
	__u32 token; /* index of its element; 0: none */
	__u32 generation;
	__u64 since_ns; /* CLOCK_MONOTONIC */
};

/* A thread's slot; written by that thread alone. */
struct activity_thread {
	__u32 tid; /* as the process sees it; 0: free. Claimed by compare-and-swap */
	__u32 seq; /* half[seq & 1] is valid: one store commits a switch */
	struct activity_half half[2];
	__u64 _pad[11];
};

struct activity_token {
	__u32 generation; /* odd: live; even: free. One more at each token() and end() */
	__u32 flags;
	__u64 begin_ns;
	__u64 end_ns;
	__u64 cpu_ns;  /* added by threads at a switch of tokens: of their slice so far */
	__u64 wall_ns; /* added by threads at a switch: since the one before; and at their end, by the kernel side */
	__u64 value;   /* the application's number */
	__u8 trace_id[16];
	__u8 span_id[8];
	char name[ACTIVITY_NAME_LEN];		     /* NUL-terminated */
	char text[ACTIVITY_TEXT_LEN];		     /* the application's own */
	__u16 attributes[ACTIVITY_TOKEN_ATTRIBUTES]; /* numbers of struct activity_attribute, from 1 on; 0: none */
};

/*
 * A key with a value. Many tokens have the same: it is written once, and stays. Number n is at
 * index threads + tokens + n; the kernel side never reads it.
 */
struct activity_attribute {
	__u32 state;		    /* enum activity_attribute_state, by compare-and-swap */
	char key[ACTIVITY_KEY_LEN]; /* NUL-terminated, as is the value */
	char value[ACTIVITY_ATTRIBUTE_LEN];
};

enum activity_attribute_state {
	ACTIVITY_ATTRIBUTE_FREE,
	ACTIVITY_ATTRIBUTE_CLAIMED, /* it is being written */
	ACTIVITY_ATTRIBUTE_READY,
};

/* Index 0 of `shared`: for the process's own use; the kernel side never reads it. */
struct activity_client {
	__u64 next_token;	  /* where to look for a free one */
	__u64 tokens_refused;	  /* all were taken */
	__u64 threads_refused;	  /* a thread found no slot */
	__u64 attributes_refused; /* all were taken, of the process or of the token */
	__u64 _pad[12];
};

/* ------------------------------------------- written by the kernel side */

/*
 * Index 0 of `accounts`. From its word ACTIVITY_SYSCALLS on it is an account, too: of what
 * was done for the process, and for which of its tokens is not known.
 */
struct activity_header {
	__u32 abi; /* ACTIVITY_ABI */
	__u32 threads;
	__u32 tokens;
	__u32 flags; /* ACTIVITY_INHERIT */
	__u32 groups;
	__u32 process; /* its number */
	__u64 late;    /* what was to be credited to a token that had ended */
	__u64 slow_ns; /* a client reports an end after so long; 0: none */
	/* Interrupts and softirqs on top of its threads, which are in the CPU time of tokens, too. */
	__u64 machine_ns;
	__u64 _pad[13];
	__u64 unknown[ACTIVITY_VALUES - ACTIVITY_SYSCALLS]; /* by enum activity_value, from there on */
	__u64 _pad2[12];
};

/*
 * A thread, as its switches show it. `slices` is one more at each switch to the thread, so a
 * reader, or the thread itself, sees whether what it read is of one time.
 */
struct activity_thread_state {
	__u32 tid; /* as in activity_thread; of another one, the rest is left over */
	__u32 slices;
	__u64 slice_ns;		 /* when the thread got the CPU last */
	__u32 seen_seq;		 /* activity_thread.seq at the last switch-out */
	__u32 seen_slice;	 /* and `slices`, where it was that for the first time */
	__u64 seen_ns;		 /* and slice_ns there */
	__u64 out_ns;		 /* when the thread left the CPU; 0: it runs */
	__u64 waking_ns;	 /* since then it was woken; 0: not yet */
	__u64 early_ns;		 /* it was woken before it had left */
	__u32 cause;		 /* why it left: ACTIVITY_RUNNABLE_* or ACTIVITY_BLOCKED_*; 0: who wakes it tells */
	__u32 waker;		 /* the same by whom it was woken */
	__u32 token, generation; /* carried at the switch-out */
	__u64 runtime_ns;	 /* of its own clock, at its last switch */
	__u64 away_ns;		 /* how long it has not run in all, since its slot is its own */
	__u64 counters[3];	 /* of hardware, at the begin of its slice; 0: not read */
	__u64 _pad2[50];
};

/*
 * What a token has cost. Of the generation that it says: if the token has another by now,
 * nothing has been credited to it yet.
 */
struct activity_account {
	__u64 value[ACTIVITY_WORDS]; /* by enum activity_value */
	__u32 generation;
	__u32 _pad;
};

/* ------------------------------------ between the daemon and the kernel side */

/* By number; written by the daemon. */
struct activity_process {
	__u32 serial; /* of who has the number now; 0: nobody */
	__u32 threads;
	__u32 thread_shift; /* 32 - log2(threads) */
	__u32 tokens;
	__u32 flags;
	__u32 _pad;
};

/* Which process a task belongs to; of its first thread. */
struct activity_owner {
	__u32 process;
	__u32 serial;
};

/* Whom something will be credited to, kept by what is done for it: a request, a work item. */
struct activity_reference {
	__u32 process;
	__u32 serial; /* 0: nobody */
	__u32 token;
	__u32 generation;
};

enum activity_carried_size {
	CARRIED_ELEMENTS = 1024,	/* of each CPU, a power of two */
	EVICTED_ELEMENTS = 256,		/* the same */
	EVICTED_TOGETHER_NS = 10000000, /* pages that come in so soon after each other are told as one */
};

/*
 * What a thread carried, as seen when it left its CPU with another token than at the time
 * before. Written by the kernel side, read by the daemon alone. The halves are as its process
 * wrote them.
 */
struct activity_carried {
	__u64 time_ns;		      /* 0: it is being written */
	__u64 slice_ns;		      /* its slice began; 0: not known */
	struct activity_half half[2]; /* what it carries, and what it carried before */
	__u32 tid;
	__u32 inside; /* the same as its process sees it */
	__u32 seq;    /* activity_thread.seq */
	__u32 serial; /* of its process */
};

/* Pages that a thread brought in, and that a token had evicted before. The same. */
struct activity_evicted {
	__u64 time_ns;	/* the last of them came; 0: it is being written */
	__u64 since_ns; /* the first did */
	__u64 evicted_ns;
	struct activity_reference by;
	__u32 tid;
	__u32 by_tid; /* who evicted them */
	__u32 pages;
	__u32 _pad[3];
};

/* Argument of the program activity_publish. */
struct activity_publication {
	__u32 process;
	__u32 _pad;
	__u64 slow_ns; /* as in activity_header */
};

#endif
