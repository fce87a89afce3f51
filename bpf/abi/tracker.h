/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The trackers, their floors, and what one event's task is called. */
#ifndef TAILCAM_ABI_TRACKER_H
#define TAILCAM_ABI_TRACKER_H

#include <linux/types.h>

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
	TRACK_WORKQUEUE = 9,
	TRACKERS = 10,
};

/*
 * Where outliers are made, of a CPU: one a tracker, as their contexts may interrupt each other, and
 * one more where programs of a tracker may preempt each other (see tailcam.bpf.c).
 */
enum scratch_index {
	SCRATCH_TICK = TRACKERS,
	SCRATCH_SOFTIRQ,   /* workqueue: of work that runs in softirqs, on top of others */
	SCRATCH_WORK_WAIT, /* workqueue: of waits */
	SCRATCH_RAISE,	   /* softirq: of waits */
	SCRATCHES,
};

/* Outliers of system calls that programs at functions may make at once, of a CPU. */
enum call_scratches {
	CALL_SCRATCHES = 4,
};

/* Bytes of names, with their NUL. */
enum name_length {
	TASK_COMM_LEN = 16,
	DISK_NAME_LEN = 32,
	WORK_NAME_LEN = 32,
};

/* A floor, a timeout or a threshold that no delay reaches. */
enum limit {
	NEVER = 0x7fffffffffffffff,
};

/* Key classes of the floors of each tracker: one threshold and one timeout is kept for each. */
enum floor_size {
	FLOOR_THREADS = 2,  /* wakeup, offcpu: by number of the thread bit */
	FLOOR_STATES = 3,   /* offcpu: by number of the state bit */
	FLOOR_OPS = 8,	    /* block: by number of the op bit; power of two */
	FLOOR_ENDS = 4,	    /* chain: by CHAIN_END_*; power of two */
	SYSCALLS = 1024,    /* by number; power of two */
	SYSCALLS_32 = 512,  /* added to the numbers of 32-bit programs; own ones past this are not tracked */
	IRQ_CLASSES = 256,  /* by the low bits of the irq's number */
	SOFTIRQS = 16,	    /* power of two; kernels have 10 */
	PHASES = 2,	    /* softirq, workqueue: by work_phase */
	TIMEOUT_STATES = 4, /* FLOOR_STATES, as a power of two */
	TIMEOUT_TABLES = 8, /* TABLES, as a power of two */
};

/* calls_wanted: what programs at the tracepoints do about calls of one number, which both tables have. */
enum call_wanted {
	CALL_ENTRY = 1 << 0, /* of 64-bit programs */
	CALL_EXIT = 1 << 1,
	CALL_ENTRY_32 = 1 << 2, /* of 32-bit programs */
	CALL_EXIT_32 = 1 << 3,
	CALL_EXEC = 1 << 4, /* it may end as a call of the other table: execve, execveat */
	CALL_EXEC_32 = 1 << 5,
};

/* How many helpers of the daemon are told from other processes. */
enum self_size {
	SELF_HELPERS = 8,
};

/* Of a softirq or a work item. */
enum work_phase {
	PHASE_RAISE = 0, /* softirq: raised until it runs */
	PHASE_WAIT = 0,	 /* work item: queued until it runs */
	PHASE_RUN = 1,	 /* its run */
};

#endif
