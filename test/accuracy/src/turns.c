/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that wait for their turn with a limit, again and again: as interpreters do. */
#define _GNU_SOURCE
#include "scenario.h"

#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static bool taken;
static volatile uint64_t begin, resumed;

/* As interpreters take the lock of their own: wait for a while, ask for it, wait again. */
noinline void take_turn(void)
{
	pthread_mutex_lock(&mutex);
	while (taken) {
		uint64_t at = now() + 5 * MSEC;
		struct timespec limit = {.tv_sec = (time_t)(at / NSEC), .tv_nsec = (long)(at % NSEC)};

		pthread_cond_clockwait(&turn, &mutex, CLOCK_MONOTONIC, &limit);
	}
	taken = true;
	pthread_mutex_unlock(&mutex);
}

static void keep_turn(struct actor *actor)
{
	(void)actor;
	taken = true;
	begin = now() + 10 * MSEC;
	spin_until(begin + LONG);
	pthread_mutex_lock(&mutex);
	taken = false;
	resumed = now();
	pthread_cond_signal(&turn);
	pthread_mutex_unlock(&mutex);
}

static void timed_turns(void)
{
	struct actor holder = {.comm = "scn-holder", .cpu = other, .fifo = MIDDLE, .act = keep_turn};

	start(&holder);
	while (!begin)
		usleep(200);
	sleep_until(begin);
	become_victim();
	take_turn();
	done();
	join(&holder);
	truth.culprit = holder.tid;
	truth.part = resumed - truth.start;
}

/* The same in Python: a thread is ready to go on, while another one computes. */
static void python(const char *how)
{
	unsigned long long begin_ns, end_ns;
	char command[512];

	if (!argument)
		die("this scenario wants the path of a program in Python");
	snprintf(command, sizeof(command), "exec python3 %s %s %s", argument, victim_comm, how);
	FILE *f = popen(command, "re");
	need(f && fscanf(f, "%d %d %llu %llu", &truth.victim, &truth.culprit, &begin_ns, &end_ns) == 4, command);
	truth.start = begin_ns;
	truth.end = end_ns;
	if (truth.end - truth.start < 20 * MSEC)
		truth.spoilt = "the lock was free";
}

static void interpreter_lock(void)
{
	python("");
}

static void asked_once(void)
{
	python("once");
}

const struct scenario turn_scenarios[] = {
	{"timed-turns", timed_turns},
	{"python-turns", interpreter_lock},
	{"python-once", asked_once},
	{NULL, NULL},
};
