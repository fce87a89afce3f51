/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies of many tasks that have a name: an inversion, a convoy, a pool that is exhausted. */
#define _GNU_SOURCE
#include "scenario.h"

static uint64_t begin;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t released;
static volatile pid_t last;

static void take_turn(struct actor *actor, uint64_t from, uint64_t hold, bool works)
{
	sleep_until(from);
	if (actor->comm == victim_comm) {
		truth.victim = actor->tid;
		truth.start = now();
	}
	pthread_mutex_lock(&lock);
	if (actor->comm == victim_comm) {
		truth.end = now();
	} else {
		if (works)
			spin_until(now() + hold);
		else
			sleep_until(now() + hold);
		released = now();
		last = actor->tid;
	}
	pthread_mutex_unlock(&lock);
}

static void hold_first(struct actor *actor)
{
	take_turn(actor, begin, 3 * MSEC, true);
}
static void come_last(struct actor *actor)
{
	take_turn(actor, begin + MSEC, 0, false);
}

static void keep_away(struct actor *actor)
{
	(void)actor;
	exactly(begin + 2 * MSEC);
	spin_until(begin + LONG);
}

/* The hog goes before who holds the lock, but after who waits for it. */
static void inversion(void)
{
	struct actor holder = {.comm = "scn-holder", .cpu = cpu, .fifo = LOW, .act = hold_first};
	struct actor hog = {.comm = "scn-hog", .cpu = cpu, .fifo = MIDDLE, .act = keep_away};
	struct actor victim = {.comm = victim_comm, .cpu = other, .fifo = HIGH, .act = come_last};

	begin = now() + 20 * MSEC;
	start(&hog);
	start(&holder);
	start(&victim);
	join(&hog);
	join(&holder);
	join(&victim);
	truth.culprit = holder.tid;
	truth.root = hog.tid;
	truth.part = released - truth.start;
}

/* The same with a lock that does not sleep, and a hog that goes before both. */

static pthread_spinlock_t spinlock;

static void hold_spinning(struct actor *actor)
{
	(void)actor;
	sleep_until(begin);
	pthread_spin_lock(&spinlock);
	spin_until(now() + 3 * MSEC);
	pthread_spin_unlock(&spinlock);
	released = now();
}

noinline void spin_for_lock(void)
{
	pthread_spin_lock(&spinlock);
}

static void spin_last(struct actor *actor)
{
	sleep_until(begin + MSEC);
	truth.victim = actor->tid;
	truth.start = now();
	spin_for_lock();
	truth.end = now();
	pthread_spin_unlock(&spinlock);
}

static void spin_holder(void)
{
	struct actor holder = {.comm = "scn-holder", .cpu = cpu, .fifo = LOW, .act = hold_spinning};
	struct actor hog = {.comm = "scn-hog", .cpu = cpu, .fifo = HIGH, .act = keep_away};
	struct actor victim = {.comm = victim_comm, .cpu = other, .fifo = MIDDLE, .act = spin_last};

	need(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE) == 0, "make a spinlock");
	begin = now() + 20 * MSEC;
	start(&hog);
	start(&holder);
	start(&victim);
	join(&hog);
	join(&holder);
	join(&victim);
	truth.culprit = victim.tid;
	truth.part = truth.end - truth.start;
}

#define TURNS 6

static void have_turn(struct actor *actor)
{
	const uint64_t *turn = actor->arg;

	take_turn(actor, begin + *turn * MSEC / 2, 8 * MSEC, false);
}

static void wait_for_turn(struct actor *actor)
{
	take_turn(actor, begin + TURNS * MSEC, 0, false);
}

/* One after the other has the lock, none of them for long. */
static void convoy(void)
{
	struct actor holders[TURNS], victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wait_for_turn};
	uint64_t turns[TURNS];

	begin = now() + 20 * MSEC;
	for (int i = 0; i < TURNS; i++) {
		turns[i] = i;
		holders[i] = (struct actor){
			.comm = "scn-turn", .cpu = other, .fifo = MIDDLE, .act = have_turn, .arg = &turns[i]};
		start(&holders[i]);
	}
	start(&victim);
	for (int i = 0; i < TURNS; i++)
		join(&holders[i]);
	join(&victim);
	truth.culprit = last;
	truth.part = released - truth.start;
}

/* A pool of threads: jobs are taken in order. */

#define WORKERS 2
#define CLIENTS 4

struct job {
	sem_t done;
	pid_t by;
	struct job *next;
};

static struct job *first, **end = &first;

static void ask(struct job *job)
{
	need(sem_init(&job->done, 0, 0) == 0, "make a semaphore");
	pthread_mutex_lock(&lock);
	*end = job;
	end = &job->next;
	pthread_mutex_unlock(&lock);
	while (sem_wait(&job->done) != 0)
		;
}

static void serve(struct actor *actor)
{
	while (now() < begin + 10 * LONG) {
		struct timespec soon = {.tv_sec = 0, .tv_nsec = MSEC};
		struct job *job;

		pthread_mutex_lock(&lock);
		job = first;
		if (job) {
			first = job->next;
			if (!first)
				end = &first;
		}
		pthread_mutex_unlock(&lock);
		if (!job) {
			if (now() > begin + 5 * LONG)
				return;
			nanosleep(&soon, NULL);
			continue;
		}
		sleep_until(now() + 20 * MSEC);
		job->by = actor->tid;
		sem_post(&job->done);
	}
}

static void be_client(struct actor *actor)
{
	struct job job = {0};

	(void)actor;
	sleep_until(begin);
	ask(&job);
}

static void be_late(struct actor *actor)
{
	struct job job = {0};

	sleep_until(begin + 5 * MSEC);
	truth.victim = actor->tid;
	truth.start = now();
	ask(&job);
	truth.end = now();
	truth.culprit = job.by;
}

/* All workers have something to do, and the victim's job is behind that. */
static void pool(void)
{
	struct actor workers[WORKERS], clients[CLIENTS],
		victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = be_late};

	static const char *const names[WORKERS] = {"scn-worker-1", "scn-worker-2"};

	begin = now() + 20 * MSEC;
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct actor){.comm = names[i], .cpu = other, .fifo = MIDDLE, .act = serve};
		start(&workers[i]);
	}
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = (struct actor){.comm = "scn-client", .cpu = cpu, .fifo = MIDDLE, .act = be_client};
		start(&clients[i]);
	}
	start(&victim);
	for (int i = 0; i < CLIENTS; i++)
		join(&clients[i]);
	join(&victim);
	truth.part = truth.end - truth.start;
}

const struct scenario pattern_scenarios[] = {
	{"inversion", inversion}, {"spin-holder", spin_holder}, {"convoy", convoy}, {"pool", pool}, {NULL, NULL},
};
