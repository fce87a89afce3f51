/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that wait for other tasks of their machine, or for the clock. */
#define _GNU_SOURCE
#include "two.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t until;

/* ------------------------------------------------------------------- locks */

#define LOCKS 3
static pthread_mutex_t lock[LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static void lock_victim(struct actor *actor)
{
	truth.victim = actor->tid;
	sleep_until(begin + MSEC);
	truth.start = now();
	pthread_mutex_lock(&lock[0]);
	truth.end = now();
	pthread_mutex_unlock(&lock[0]);
}

static void release(void)
{
	released = now();
	pthread_mutex_unlock(&lock[0]);
}

static void hold_asleep(struct actor *actor)
{
	(void)actor;
	pthread_mutex_lock(&lock[0]);
	sleep_until(begin + LONG);
	release();
}

static void futex_sleeper(void)
{
	two("scn-holder", hold_asleep, lock_victim);
}

static void hold_working(struct actor *actor)
{
	(void)actor;
	sleep_until(begin);
	pthread_mutex_lock(&lock[0]);
	spin_until(begin + 3 * MSEC);
	release();
}

static void keep_holder_away(struct actor *actor)
{
	(void)actor;
	exactly(begin + 2 * MSEC);
	spin_until(begin + LONG);
}

/* Who holds the lock is not important, and kept off its CPU by one who is. */
static void futex_inversion(void)
{
	struct actor holder = {.comm = "scn-holder", .cpu = cpu, .fifo = LOW, .act = hold_working};
	struct actor hog = {.comm = "scn-hog", .cpu = cpu, .fifo = HIGH, .act = keep_holder_away};
	struct actor victim = {.comm = victim_comm, .cpu = other, .fifo = MIDDLE, .act = lock_victim};

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

static void hold_and_wait(struct actor *actor)
{
	pthread_mutex_t *own = actor->arg;

	pthread_mutex_lock(own);
	sleep_until(begin);
	pthread_mutex_lock(own + 1);
	pthread_mutex_unlock(own + 1);
	if (own == &lock[0])
		release();
	else
		pthread_mutex_unlock(own);
}

static void hold_last(struct actor *actor)
{
	pthread_mutex_lock(actor->arg);
	sleep_until(begin - MSEC);
	spin_until(begin + LONG);
	pthread_mutex_unlock(actor->arg);
}

/* Each holds a lock and waits for the next one; who holds the last one works. */
static void lock_chain(void)
{
	struct actor third = {.comm = "scn-third", .cpu = other, .fifo = MIDDLE, .act = hold_last, .arg = &lock[2]};
	struct actor second = {.comm = "scn-second", .cpu = cpu, .fifo = MIDDLE, .act = hold_and_wait, .arg = &lock[1]};
	struct actor first = {.comm = "scn-first", .cpu = cpu, .fifo = MIDDLE, .act = hold_and_wait, .arg = &lock[0]};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = lock_victim};

	begin = now() + 20 * MSEC;
	start(&third);
	start(&second);
	start(&first);
	start(&victim);
	join(&third);
	join(&second);
	join(&first);
	join(&victim);
	truth.culprit = first.tid;
	truth.root = third.tid;
	truth.part = released - truth.start;
}

/* -------------------------------------------------------------------- pipe */

static int ends[2];

static void fill_pipe(struct actor *actor)
{
	static char buf[4096];

	need(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0, "make a pipe not block");
	while (write(ends[1], buf, sizeof(buf)) > 0)
		;
	need(fcntl(ends[1], F_SETFL, 0) == 0, "make a pipe block");
	truth.victim = actor->tid;
	sleep_until(begin);
	truth.start = now();
	need(write(ends[1], buf, sizeof(buf)) == sizeof(buf), "write to a pipe");
	truth.end = now();
}

static void read_late(struct actor *actor)
{
	static char buf[1 << 20];

	(void)actor;
	sleep_until(begin - MSEC);
	spin_until(begin + LONG);
	released = now();
	need(read(ends[0], buf, sizeof(buf)) > 0, "read from a pipe");
}

static void pipe_full(void)
{
	need(pipe2(ends, O_CLOEXEC) == 0, "make a pipe");
	two("scn-reader", read_late, fill_pipe);
}

/* ------------------------------------------------------------------- child */

/* Waits for a child, which computes. */
static void child(void)
{
	uint64_t *last = mmap(NULL, sizeof(*last), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	need(last != MAP_FAILED, "shared memory");
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	pin_thread(cpu);
	until = now() + 20 * MSEC + LONG;
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		name_thread("scn-child");
		pin_thread(other);
		spin_until(until);
		*last = now();
		_exit(0);
	}
	sleep_until(until - LONG);
	name_thread(victim_comm);
	truth.victim = gettid();
	truth.start = now();
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
	truth.end = now();
	name_thread("scn-idle");
	truth.culprit = pid;
	truth.part = *last - truth.start;
}

/* ------------------------------------------------------------------- clock */

static void sleep_long(struct actor *actor)
{
	sleep_until(begin);
	truth.victim = actor->tid;
	truth.start = now();
	sleep_until(truth.start + LONG);
	truth.end = now();
}

/* It asked for it itself. */
static void timer(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = sleep_long};

	begin = now() + 5 * MSEC;
	start(&victim);
	join(&victim);
	truth.part = LONG;
}

const struct scenario wait_scenarios[] = {
	{"futex-sleeper", futex_sleeper},
	{"futex-invert", futex_inversion},
	{"lock-chain", lock_chain},
	{"pipe", pipe_full},
	{"child", child},
	{"timer", timer},
	{NULL, NULL},
};
