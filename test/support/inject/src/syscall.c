/* SPDX-License-Identifier: Apache-2.0 */
/* System calls of a known length. */
#define _GNU_SOURCE
#include "inject.h"
#include "waits.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>

noinline void inject_syscall_read(struct wait *wait)
{
	char byte;

	raw(SYS_read, wait->fd, (long)&byte, 1, 0, 0, 0);
}

/* ppoll, as arm64 has no poll. It leaves the byte to a read that is not slow. */
noinline void inject_syscall_poll(struct wait *wait)
{
	struct pollfd fd = {.fd = wait->fd, .events = POLLIN};
	char byte;

	raw(SYS_ppoll, (long)&fd, 1, 0, 0, 0, 0);
	raw(SYS_read, wait->fd, (long)&byte, 1, 0, 0, 0);
}

noinline void inject_syscall_futex(struct wait *wait)
{
	while (__atomic_load_n(wait->word, __ATOMIC_ACQUIRE) == 0)
		raw(SYS_futex, (long)wait->word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
}

/* Not until the deadline: a thread that is preempted before its call would be in it for less. */
noinline void inject_syscall_sleep(struct wait *wait)
{
	struct timespec ts = {.tv_sec = (time_t)(wait->length / NSEC), .tv_nsec = (long)(wait->length % NSEC)};

	raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&ts, 0, 0, 0);
}

int cmd_syscall(int argc, char **argv)
{
	static const struct way ways[] = {
		{"read", "inject_syscall_read", inject_syscall_read, PARTNER_PIPE},
		{"poll", "inject_syscall_poll", inject_syscall_poll, PARTNER_PIPE},
		{"futex", "inject_syscall_futex", inject_syscall_futex, PARTNER_FUTEX},
		{"sleep", "inject_syscall_sleep", inject_syscall_sleep, PARTNER_NONE},
	};

	return waits_run("syscall", "inj-syscall", false, ways, sizeof(ways) / sizeof(ways[0]), argc, argv);
}
