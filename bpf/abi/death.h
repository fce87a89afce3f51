/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is told of a thread that has ended by a signal that dumps core. */
#ifndef TAILCAM_ABI_DEATH_H
#define TAILCAM_ABI_DEATH_H

#include <linux/types.h>

enum death_size {
	DEATH_ARGS = 256,	/* bytes of the command line */
	DEATHS = 1024,		/* threads that may be dying at once */
	DEATH_RING = 64 * 1024, /* a multiple of every page size */
};

enum death_status {
	DEATH_SIGNAL = 0x7f, /* which signal, as in wait(2) */
	DEATH_DUMPED = 0x80, /* the kernel has written a core */
};

struct death {
	__u64 signal_ns; /* when the signal was delivered, CLOCK_MONOTONIC; 0: that was not seen */
	__u64 exit_ns;	 /* when the thread ended, after its core was written */
	__u64 cgroup;	 /* id, v2 */
	__u64 address;	 /* of a fault: si_addr */
	__u32 pid;
	__u32 tid;
	__u32 uid;
	__s32 code;   /* si_code */
	__u32 sender; /* si_pid, as the receiver sees it, if the code says that somebody sent it */
	__u32 status; /* enum death_status */
	__u32 args_bytes;
	__u32 _pad;
	char comm[16];
	char args[DEATH_ARGS]; /* with a NUL after each */
};

#endif
