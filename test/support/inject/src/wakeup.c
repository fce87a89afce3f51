/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups that have to wait. On each CPU one real-time hog and its victims:
 * in a round all victims sleep to the same moment, the hog takes the CPU just
 * before it and gives it up after the delay. The victims are real-time threads
 * of lower priority, so that nothing but the hog delays them.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COMM_VICTIM "inj-wakeup"
#define MAX_CPUS 1024

static const uint64_t lead_in = 100000;	  /* the hog runs this long before the timers are due */
static const uint64_t most_gap = 1000000; /* in the hog's run, where the timers are due */

struct group {
	int cpu, victims;
	long over, under; /* rounds */
	uint64_t over_ns, under_ns;

	/* A round: the hog writes `due`, then counts `round` up. */
	uint64_t due;
	bool late;  /* the hog was not there when the timers were due, by its own clock */
	bool alone; /* the hog was not preempted */
	uint32_t round;
	uint32_t measured; /* victims that are through with it, and at first: that are there */
};

struct victim {
	struct group *group;
	struct events events;
	pthread_t thread;
};

static void futex_wait(uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

noinline void inject_wakeup_victim(uint64_t due)
{
	struct timespec ts = {.tv_sec = (time_t)(due / NSEC), .tv_nsec = (long)(due % NSEC)};

	raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&ts, 0, 0, 0);
}

/* Spins, and returns the longest time between two looks at the clock about a moment. */
noinline uint64_t inject_wakeup_hog(uint64_t until, uint64_t moment)
{
	uint64_t last = now(), gap = last < moment ? 0 : UINT64_MAX, next;

	for (; last < until; last = next) {
		next = now();
		if (next > moment && last < moment + most_gap && next - last > gap)
			gap = next - last;
	}
	return gap;
}

static void ready(struct group *group)
{
	if (__atomic_add_fetch(&group->measured, 1, __ATOMIC_ACQ_REL) == (uint32_t)group->victims)
		futex_wake(&group->measured, 1);
}

static void *victim_main(void *arg)
{
	struct victim *self = arg;
	struct group *group = self->group;

	pin_thread(group->cpu);
	need(fifo_thread(1) == 0, "make a victim SCHED_FIFO");
	name_thread(COMM_VICTIM);
	self->events.since = now();
	ready(group);
	for (long i = 0; i < group->over + group->under; i++) {
		while (__atomic_load_n(&group->round, __ATOMIC_ACQUIRE) == (uint32_t)i)
			futex_wait(&group->round, (uint32_t)i);

		bool over = is_over(i, group->over, group->under);
		struct switches before = switches();
		uint64_t start = now();
		inject_wakeup_victim(group->due);
		uint64_t end = now();
		struct switches after = switches();
		const char *kind = kind_of(over, end - group->due, over ? group->over_ns : group->under_ns);

		/* Anything but one sleep, one from after the hog had come (others had
		 * the CPU before it), one without the hog: the kernel saw something else
		 * than this. */
		if (start > group->due - lead_in || after.slept != before.slept + 1 ||
		    after.preempted != before.preempted || group->late)
			kind = "spoilt";
		events_add(&self->events, "wakeup", kind, "inject_wakeup_victim", group->due, end)->alone =
			group->alone;
		ready(group);
	}
	name_thread("inj-idle");
	return NULL;
}

static void wait_for_victims(struct group *group)
{
	for (;;) {
		uint32_t measured = __atomic_load_n(&group->measured, __ATOMIC_ACQUIRE);

		if (measured == (uint32_t)group->victims)
			return;
		futex_wait(&group->measured, measured);
	}
}

static void *hog_main(void *arg)
{
	struct group *group = arg;

	pin_thread(group->cpu);
	need(fifo_thread(50) == 0, "make a hog SCHED_FIFO");
	name_thread("inj-hog");
	for (long i = 0; i < group->over + group->under; i++) {
		bool over = is_over(i, group->over, group->under);
		uint64_t delay = over ? group->over_ns : group->under_ns;
		wait_for_victims(group);
		/* The victims need the CPU to go to sleep; and others need it at
		 * times, or the kernel takes it away from real-time threads. */
		uint64_t rest = 300000 + 40000 * (uint64_t)group->victims + delay / 8;

		group->due = now() + rest + lead_in;
		__atomic_store_n(&group->measured, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&group->round, (uint32_t)i + 1, __ATOMIC_RELEASE);
		futex_wake(&group->round, group->victims);
		sleep_until(group->due - lead_in);

		struct switches before = switches();
		uint64_t gap = inject_wakeup_hog(group->due + delay, group->due);

		group->late = gap > most_gap;
		group->alone = switches().preempted == before.preempted;
	}
	return NULL;
}

static long rounds(long events, int victims)
{
	return (events + victims - 1) / victims;
}

int cmd_wakeup(int argc, char **argv)
{
	static int cpus[MAX_CPUS];

	if (argc != 6)
		die("wakeup wants N_OVER over_us N_UNDER under_us threads");
	long over = number(argv[1], 0, 1000000);
	uint64_t over_ns = 1000 * (uint64_t)number(argv[2], 1, 500000);
	long under = number(argv[3], 0, 10000000);
	uint64_t under_ns = 1000 * (uint64_t)number(argv[4], 1, 500000);
	int threads = (int)number(argv[5], 1, 10000);

	int groups = allowed_cpus(cpus, MAX_CPUS);
	if (groups > threads)
		groups = threads;
	/* Every victim goes through as many rounds: at least the events asked for. */
	struct group *group = calloc((size_t)groups, sizeof(*group));
	struct victim *victim = calloc((size_t)threads, sizeof(*victim));
	pthread_t *hog = calloc((size_t)groups, sizeof(*hog));
	need(group && victim && hog, "memory for threads");

	for (int i = 0; i < groups; i++) {
		group[i].cpu = cpus[i];
		group[i].over = rounds(over, threads);
		group[i].under = rounds(under, threads);
		group[i].over_ns = over_ns;
		group[i].under_ns = under_ns;
	}
	for (int i = 0; i < threads; i++) {
		victim[i].group = &group[i % groups];
		victim[i].group->victims++;
		events_init(&victim[i].events, (size_t)(group[0].over + group[0].under));
	}
	for (int i = 0; i < threads; i++)
		need(pthread_create(&victim[i].thread, NULL, victim_main, &victim[i]) == 0, "make a thread");
	for (int i = 0; i < groups; i++)
		need(pthread_create(&hog[i], NULL, hog_main, &group[i]) == 0, "make a thread");
	for (int i = 0; i < groups; i++)
		pthread_join(hog[i], NULL);
	for (int i = 0; i < threads; i++) {
		pthread_join(victim[i].thread, NULL);
		events_print(&victim[i].events);
	}
	return 0;
}
