/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "waits.h"
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct order {
	uint64_t deadline;
	enum partner how;
};

struct worker {
	const char *track, *comm;
	bool one_sleep;
	const struct way *ways;
	int way_count, number;
	long over, under;
	uint64_t over_ns, under_ns;
	pthread_barrier_t *start;

	int orders[2], answers[2]; /* pipes */
	uint32_t word;
	struct events events;
	pthread_t thread, partner;
};

static void *partner_main(void *arg)
{
	struct worker *worker = arg;
	struct order order;

	name_thread("inj-partner");
	/* The worker's equal, so as not to preempt it. Without the right: a little less exact. */
	fifo_thread(1);
	while (read(worker->orders[0], &order, sizeof(order)) == sizeof(order)) {
		sleep_until(order.deadline);
		if (order.how == PARTNER_FUTEX) {
			__atomic_store_n(&worker->word, 1, __ATOMIC_RELEASE);
			syscall(SYS_futex, &worker->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		} else {
			need(write(worker->answers[1], "x", 1) == 1, "let a worker go");
		}
	}
	return NULL;
}

static void wait_once(struct worker *self, long i)
{
	const struct way *way = &self->ways[(i + self->number) % self->way_count];
	bool over = is_over(i, self->over, self->under);
	uint64_t delay = over ? self->over_ns : self->under_ns;
	struct wait wait = {.fd = self->answers[0], .word = &self->word, .length = delay};

	__atomic_store_n(&self->word, 0, __ATOMIC_RELEASE);
	if (way->partner != PARTNER_NONE) {
		struct order order = {.deadline = now() + delay, .how = way->partner};

		need(write(self->orders[1], &order, sizeof(order)) == sizeof(order), "ask the partner");
	}

	struct switches before = switches();
	uint64_t start = now();
	wait.deadline = start + delay;
	way->wait(&wait);
	uint64_t end = now();
	struct switches after = switches();
	const char *kind = kind_of(over, end - start, delay);

	/* Preempted, it may have been away outside of the call, or of the sleep. */
	if (after.preempted != before.preempted || (self->one_sleep && after.slept != before.slept + 1))
		kind = "spoilt";
	events_add(&self->events, self->track, kind, way->func, start, end);
}

static void *worker_main(void *arg)
{
	struct worker *self = arg;

	name_thread("inj-idle");
	fifo_thread(1); /* without the right: other work may delay the threads */
	pthread_barrier_wait(self->start);
	/* The name is worn only while every long wait is an injected one. */
	self->events.since = now();
	name_thread(self->comm);
	for (long i = 0; i < self->over + self->under; i++)
		wait_once(self, i);
	name_thread("inj-idle");
	close(self->orders[1]);
	return NULL;
}

/* Shares n things among threads, the first ones getting what is left over. */
static long share(long n, int threads, int i)
{
	return n / threads + (i < n % threads);
}

int waits_run(const char *track, const char *comm, bool one_sleep, const struct way *ways, int way_count, int argc,
	      char **argv)
{
	static pthread_barrier_t start;

	if (argc != 7)
		die("wanted: WAY N_OVER over_us N_UNDER under_us threads");
	if (strcmp(argv[1], "all") != 0) {
		int found = -1;

		for (int i = 0; i < way_count; i++) {
			if (strcmp(argv[1], ways[i].name) == 0)
				found = i;
		}
		if (found < 0)
			die("no such way of waiting");
		ways += found;
		way_count = 1;
	}
	long over = number(argv[2], 0, 1000000);
	uint64_t over_ns = 1000 * (uint64_t)number(argv[3], 1, INT_MAX);
	long under = number(argv[4], 0, 10000000);
	uint64_t under_ns = 1000 * (uint64_t)number(argv[5], 1, INT_MAX);
	int threads = (int)number(argv[6], 1, 10000);
	struct worker *worker = calloc((size_t)threads, sizeof(*worker));

	need(worker, "memory for threads");
	need(pthread_barrier_init(&start, NULL, (unsigned)threads) == 0, "make a barrier");
	for (int i = 0; i < threads; i++) {
		struct worker *w = &worker[i];

		w->track = track;
		w->comm = comm;
		w->one_sleep = one_sleep;
		w->ways = ways;
		w->way_count = way_count;
		w->number = i;
		w->over = share(over, threads, i);
		w->under = share(under, threads, i);
		w->over_ns = over_ns;
		w->under_ns = under_ns;
		w->start = &start;
		events_init(&w->events, (size_t)(w->over + w->under));
		need(pipe2(w->orders, O_CLOEXEC) == 0, "make a pipe");
		need(pipe2(w->answers, O_CLOEXEC) == 0, "make a pipe");
		need(pthread_create(&w->partner, NULL, partner_main, w) == 0, "make a thread");
		need(pthread_create(&w->thread, NULL, worker_main, w) == 0, "make a thread");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(worker[i].thread, NULL);
		pthread_join(worker[i].partner, NULL);
		events_print(&worker[i].events);
	}
	return 0;
}
