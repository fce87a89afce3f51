/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "inject.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void die(const char *what)
{
	fprintf(stderr, "inject: %s\n", what);
	exit(1);
}

void need(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
	exit(1);
}

void events_init(struct events *events, size_t room)
{
	events->at = calloc(room ? room : 1, sizeof(*events->at));
	events->count = 0;
	events->room = room;
	need(events->at, "memory for events");
	/* Touched now, so that no page fault falls into a measurement. */
	memset(events->at, 0, room * sizeof(*events->at));
}

/* Of the calling thread; -1: not pinned. */
static __thread int pinned_to = -1;

struct event *events_add(struct events *events, const char *track, const char *kind, const char *func, uint64_t start,
			 uint64_t end)
{
	if (events->count == events->room)
		die("more events than there is room for");
	struct event *e = &events->at[events->count++];

	*e = (struct event){.track = track,
			    .kind = kind,
			    .func = func,
			    .pid = getpid(),
			    .tid = gettid(),
			    .cpu = pinned_to,
			    .since_ns = events->since,
			    .start_ns = start,
			    .end_ns = end,
			    .offset = -1};
	prctl(PR_GET_NAME, e->comm);
	events->since = end;
	return e;
}

void events_print(const struct events *events)
{
	for (size_t i = 0; i < events->count; i++) {
		const struct event *e = &events->at[i];

		printf("{\"track\":\"%s\",\"kind\":\"%s\",\"func\":\"%s\",\"comm\":\"%s\","
		       "\"pid\":%d,\"tid\":%d,\"cpu\":%d,\"since_ns\":%llu,\"start_ns\":%llu,\"end_ns\":%llu,"
		       "\"offset\":%lld,\"alone\":%s}\n",
		       e->track, e->kind, e->func, e->comm, e->pid, e->tid, e->cpu, (unsigned long long)e->since_ns,
		       (unsigned long long)e->start_ns, (unsigned long long)e->end_ns, (long long)e->offset,
		       e->alone ? "true" : "false");
	}
	fflush(stdout);
}

uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

void sleep_until(uint64_t at)
{
	struct timespec ts = {.tv_sec = (time_t)(at / NSEC), .tv_nsec = (long)(at % NSEC)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

void spin_until(uint64_t at)
{
	while (now() < at)
		;
}

void name_thread(const char *comm)
{
	prctl(PR_SET_NAME, comm, 0, 0, 0);
}

void pin_thread(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	need(sched_setaffinity(0, sizeof(set), &set) == 0, "pin a thread");
	pinned_to = cpu;
}

int fifo_thread(int priority)
{
	struct sched_param param = {.sched_priority = priority};

	return sched_setscheduler(0, SCHED_FIFO, &param);
}

int allowed_cpus(int *cpus, int room)
{
	cpu_set_t set;
	int count = 0;

	need(sched_getaffinity(0, sizeof(set), &set) == 0, "read the allowed CPUs");
	for (int cpu = 0; cpu < CPU_SETSIZE && count < room; cpu++) {
		if (CPU_ISSET(cpu, &set))
			cpus[count++] = cpu;
	}
	return count;
}

struct switches switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (struct switches){usage.ru_nvcsw, usage.ru_nivcsw};
}

long number(const char *text, long min, long max)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < min || value > max) {
		fprintf(stderr, "inject: %s: not a number from %ld to %ld\n", text, min, max);
		exit(1);
	}
	return value;
}

bool is_over(long i, long over, long under)
{
	long total = over + under;

	return (i + 1) * over / total != i * over / total;
}

const char *kind_of(bool over, uint64_t delay, uint64_t asked)
{
	if (!over)
		return "under";
	return delay < asked / 100 * 95 ? "spoilt" : "over";
}
