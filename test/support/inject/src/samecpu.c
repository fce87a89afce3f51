/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow sleeper whose waker runs on the same CPU. The waker then leaves the CPU
 * to it by going to sleep itself, in a function of another name: a tracer that
 * takes the stack of the task that leaves shows that one.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COMM "inj-victim"

static int to_victim[2], to_other[2];
static int cpu;

noinline long inject_samecpu_victim(void)
{
	char byte;

	return raw(SYS_read, to_victim[0], (long)&byte, 1, 0, 0, 0);
}

noinline long inject_samecpu_waker(uint64_t *deadline)
{
	return raw(SYS_read, to_other[0], (long)deadline, sizeof(*deadline), 0, 0, 0);
}

static void *other_main(void *unused)
{
	uint64_t deadline;

	pin_thread(cpu);
	fifo_thread(1); /* equals, so that a wake-up alone does not switch */
	name_thread("inj-other");
	while (inject_samecpu_waker(&deadline) == sizeof(deadline)) {
		/* Asleep for most of it: the CPU belongs to others too. */
		sleep_until(deadline - 500000);
		spin_until(deadline);
		need(write(to_victim[1], "x", 1) == 1, "wake the victim");
	}
	return unused;
}

int cmd_samecpu(int argc, char **argv)
{
	struct events events;
	pthread_t other;

	if (argc != 3)
		die("samecpu wants N_OVER over_us");
	long count = number(argv[1], 1, 1000000);
	uint64_t delay = 1000 * (uint64_t)number(argv[2], 1000, INT_MAX);

	need(allowed_cpus(&cpu, 1) == 1, "find a CPU");
	need(pipe2(to_victim, O_CLOEXEC) == 0, "make a pipe");
	need(pipe2(to_other, O_CLOEXEC) == 0, "make a pipe");
	events_init(&events, (size_t)count);
	need(pthread_create(&other, NULL, other_main, NULL) == 0, "make a thread");
	pin_thread(cpu);
	fifo_thread(1);
	events.since = now();
	name_thread(COMM);
	for (long i = 0; i < count; i++) {
		uint64_t deadline = now() + delay;

		need(write(to_other[1], &deadline, sizeof(deadline)) == sizeof(deadline), "ask the waker");
		struct switches before = switches();
		uint64_t start = now();
		need(inject_samecpu_victim() == 1, "sleep");
		uint64_t end = now();
		struct switches after = switches();
		const char *kind = kind_of(true, end - start, delay);

		if (after.preempted != before.preempted || after.slept != before.slept + 1)
			kind = "spoilt";
		events_add(&events, "offcpu", kind, "inject_samecpu_victim", start, end);
	}
	name_thread("inj-idle");
	close(to_other[1]);
	pthread_join(other, NULL);
	events_print(&events);
	return 0;
}
