/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load whose delays shift: threads that sleep, all for about as long, and for
 * another while in each phase. One call in many is an outlier. Only those are
 * printed, and two more events: the offset of the one, "late", is how many of the
 * other calls took longer than asked for; that of the last one how many calls
 * there were in all, and its delay what one in twenty of them exceeded.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COMM "inj-shift"
#define EVERY 500 /* calls of a thread between two outliers */
#define BINS 100000
#define BIN_NS 10000
#define LATE_NS 500000

static unsigned int delays[BINS]; /* how many calls took so long, or longer at the end */
static long phases, seconds, outlier_us;
static long *phase_us;
static uint64_t begin;

struct shifter {
	pthread_t thread;
	struct events events;
	unsigned int seed;
	long calls, late;
};

noinline void inject_shift(const struct timespec *ts)
{
	raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)ts, 0, 0, 0);
}

static void *shifter_main(void *arg)
{
	struct shifter *s = arg;
	long until = EVERY / 2 + rand_r(&s->seed) % EVERY;

	fifo_thread(1);
	name_thread(COMM);
	for (;;) {
		uint64_t start = now();
		long phase = (long)((start - begin) / NSEC) / seconds;
		bool outlier = --until == 0;

		if (phase >= phases)
			break;
		/* Within 10 % of what the phase asks for. */
		long us = phase_us[phase] * (900 + rand_r(&s->seed) % 200) / 1000;
		if (outlier)
			us = outlier_us;
		const struct timespec ts = {.tv_nsec = us * 1000};

		start = now();
		inject_shift(&ts);
		uint64_t end = now(), bin = (end - start) / BIN_NS;

		__sync_fetch_and_add(&delays[bin < BINS ? bin : BINS - 1], 1);
		s->calls++;
		if (!outlier) {
			s->late += end - start > 1000 * (uint64_t)us + LATE_NS;
			continue;
		}
		events_add(&s->events, "syscall", "over", "inject_shift", start, now());
		until = EVERY;
	}
	name_thread("inj-idle");
	return NULL;
}

int cmd_shift(int argc, char **argv)
{
	if (argc < 5)
		die("shift wants THREADS OUTLIER_us SECONDS PHASE_us...");
	long threads = number(argv[1], 1, 64);
	outlier_us = number(argv[2], 1, 999999);
	seconds = number(argv[3], 1, 3600);
	phases = argc - 4;
	phase_us = calloc((size_t)phases, sizeof(*phase_us));
	need(phase_us, "memory");
	for (long i = 0; i < phases; i++)
		phase_us[i] = number(argv[4 + i], 100, 900000);

	long calls = 0, late = 0;
	struct shifter *shifters = calloc((size_t)threads, sizeof(*shifters));

	need(shifters, "memory");
	begin = now();
	for (long i = 0; i < threads; i++) {
		shifters[i].seed = (unsigned int)i + 1;
		events_init(&shifters[i].events, 65536);
		need(pthread_create(&shifters[i].thread, NULL, shifter_main, &shifters[i]) == 0, "make a thread");
	}
	for (long i = 0; i < threads; i++) {
		need(pthread_join(shifters[i].thread, NULL) == 0, "wait for a thread");
		events_print(&shifters[i].events);
		calls += shifters[i].calls;
		late += shifters[i].late;
	}
	long bin = BINS, slower = 0;

	while (bin > 0 && slower < calls / 20)
		slower += delays[--bin];
	struct events last;

	events_init(&last, 2);
	events_add(&last, "syscall", "late", "", begin, begin)->offset = late;
	struct event *all = events_add(&last, "syscall", "all", "", begin, begin + (uint64_t)bin * BIN_NS);
	strcpy(all->comm, COMM); /* this thread has another name, as it waits for the others */
	all->offset = calls;
	events_print(&last);
	return 0;
}
