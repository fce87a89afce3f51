/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps of a known length: interruptible ones, and vfork's uninterruptible one. */
#define _GNU_SOURCE
#include "inject.h"
#include "waits.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

noinline void inject_offcpu_read(struct wait *wait)
{
	char byte;

	raw(SYS_read, wait->fd, (long)&byte, 1, 0, 0, 0);
}

noinline void inject_offcpu_futex(struct wait *wait)
{
	while (__atomic_load_n(wait->word, __ATOMIC_ACQUIRE) == 0)
		raw(SYS_futex, (long)wait->word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
}

noinline void inject_offcpu_sleep(struct wait *wait)
{
	struct timespec ts = {.tv_sec = (time_t)(wait->deadline / NSEC), .tv_nsec = (long)(wait->deadline % NSEC)};

	raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&ts, 0, 0, 0);
}

/*
 * A parent in vfork sleeps uninterruptibly until its child lets go of the
 * memory that they share. The child touches none of it: all that it needs is
 * made before, and it makes only bare system calls. It takes another name
 * first, because it sleeps as long as its parent.
 */
noinline void inject_offcpu_vfork(struct wait *wait)
{
	static const char child_comm[] = "inj-child";
	struct timespec ts = {.tv_sec = (time_t)(wait->deadline / NSEC), .tv_nsec = (long)(wait->deadline % NSEC)};
	long child = raw(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0);

	if (child == 0) {
		raw(SYS_prctl, PR_SET_NAME, (long)child_comm, 0, 0, 0, 0);
		raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&ts, 0, 0, 0);
		for (;;)
			raw(SYS_exit, 0, 0, 0, 0, 0, 0);
	}
	need(child > 0, "vfork");
}

int cmd_offcpu(int argc, char **argv)
{
	static const struct way ways[] = {
		{"read", "inject_offcpu_read", inject_offcpu_read, PARTNER_PIPE},
		{"futex", "inject_offcpu_futex", inject_offcpu_futex, PARTNER_FUTEX},
		{"sleep", "inject_offcpu_sleep", inject_offcpu_sleep, PARTNER_NONE},
		{"vfork", "inject_offcpu_vfork", inject_offcpu_vfork, PARTNER_NONE},
	};

	/* Children of vfork vanish by themselves. */
	signal(SIGCHLD, SIG_IGN);
	return waits_run("offcpu", "inj-offcpu", true, ways, sizeof(ways) / sizeof(ways[0]), argc, argv);
}
