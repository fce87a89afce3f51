/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeps that are reached by ever other ways through functions without frame
 * pointers, beside threads that take the CPUs. After each sleep the thread at
 * once goes on: it returns all the way, writes over its old stack, and goes
 * another way.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define LONGEST 12
#define LINK noinline __attribute__((optimize("O2", "omit-frame-pointer", "no-optimize-sibling-calls")))

struct walk {
	const char *way; /* what is left of it: a letter for each function */
	uint64_t until;
	uint64_t start, end;
	volatile char sink;
};

static long walk_next(struct walk *w, long a, long b, long c);

LINK long walk_sleep(struct walk *w)
{
	struct timespec ts = {.tv_sec = (time_t)(w->until / NSEC), .tv_nsec = (long)(w->until % NSEC)};

	w->start = now();
	raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&ts, 0, 0, 0);
	w->end = now();
	return ts.tv_nsec;
}

LINK long walk_a(struct walk *w, long a, long b, long c)
{
	return walk_next(w, b, c, a) + a + b * c;
}

LINK long walk_b(struct walk *w, long a, long b, long c)
{
	char room[700];
	long r;

	memset(room, (int)a, sizeof(room));
	w->sink = room[b & 511];
	r = walk_next(w, a + room[3], b, c);
	w->sink = room[r & 511];
	return r + a * b - c;
}

/* Its frame has a size that only a register knows. */
LINK long walk_c(struct walk *w, long a, long b, long c)
{
	size_t size = (size_t)(a & 127) * 8 + 16;
	char *room = __builtin_alloca(size);
	long r;

	memset(room, 1, size);
	__asm__ volatile("" ::"r"(room) : "memory");
	r = walk_next(w, c, a + room[1], b);
	__asm__ volatile("" ::"r"(room) : "memory");
	return r - a + b + c;
}

/* Its frame begins at a multiple of 64. */
LINK long walk_d(struct walk *w, long a, long b, long c)
{
	char room[128] __attribute__((aligned(64)));
	long r;

	memset(room, (int)b, sizeof(room));
	__asm__ volatile("" ::"r"(room) : "memory");
	r = walk_next(w, a ^ 1, b ^ 2, c ^ 3);
	__asm__ volatile("" ::"r"(room) : "memory");
	return r + a - b - c;
}

static inline __attribute__((always_inline)) long walk_next(struct walk *w, long a, long b, long c)
{
	switch (*w->way++) {
	case 'a':
		return walk_a(w, a, b, c);
	case 'b':
		return walk_b(w, a, b, c);
	case 'c':
		return walk_c(w, a, b, c);
	case 'd':
		return walk_d(w, a, b, c);
	}
	return walk_sleep(w);
}

/* Leaves return addresses of other functions where the last way lay. */
LINK long walk_over(struct walk *w, long depth)
{
	void *volatile room[32];

	for (size_t i = 0; i < 32; i++)
		room[i] = (char *)walk_a + 8 + i;
	return depth ? walk_over(w, depth - 1) + (long)room[depth & 31] : (long)room[3];
}

struct walker {
	pthread_t thread;
	struct events events;
	long number, count;
	uint64_t hold;
};

static void *walk_thread(void *arg)
{
	struct walker *me = arg;
	unsigned int seed = (unsigned int)me->number + 1;

	name_thread("inj-walk");
	for (long i = 0; i < me->count; i++) {
		char *way = calloc(1, LONGEST + 1);
		struct walk w = {.way = way};
		size_t n = 1 + (size_t)rand_r(&seed) % LONGEST;

		need(way, "memory for a way");
		for (size_t at = 0; at < n; at++)
			way[at] = (char)('a' + rand_r(&seed) % 4);
		w.until = now() + me->hold;
		walk_next(&w, i, 2, 3);
		walk_over(&w, 40);
		events_add(&me->events, "offcpu", "over", way, w.start, w.end);
		/* Each at its own time: together they are another test. */
		sleep_until(now() + (uint64_t)(rand_r(&seed) % 3000) * 1000);
	}
	return NULL;
}

static volatile bool walked;

static void *busy_thread(void *arg)
{
	struct walk w = {0};

	(void)arg;
	name_thread("inj-busy");
	while (!walked)
		walk_over(&w, 20);
	return NULL;
}

int cmd_walk(int argc, char **argv)
{
	if (argc != 5)
		die("walk N hold_us THREADS BUSY");
	long count = number(argv[1], 1, 100000), threads = number(argv[3], 1, 256), busy = number(argv[4], 0, 256);
	struct walker *walkers = calloc((size_t)threads, sizeof(*walkers));
	pthread_t *others = calloc((size_t)busy + 1, sizeof(*others));

	need(walkers && others, "memory for threads");
	for (long i = 0; i < busy; i++)
		need(!pthread_create(&others[i], NULL, busy_thread, NULL), "start a thread");
	for (long i = 0; i < threads; i++) {
		walkers[i] = (struct walker){
			.number = i, .count = count, .hold = (uint64_t)number(argv[2], 1, 10000000) * 1000};
		events_init(&walkers[i].events, (size_t)count);
		need(!pthread_create(&walkers[i].thread, NULL, walk_thread, &walkers[i]), "start a thread");
	}
	for (long i = 0; i < threads; i++) {
		pthread_join(walkers[i].thread, NULL);
		events_print(&walkers[i].events);
	}
	walked = true;
	for (long i = 0; i < busy; i++)
		pthread_join(others[i], NULL);
	return 0;
}
