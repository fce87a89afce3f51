/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that wait for what several share: files, barriers, counters. */
#define _GNU_SOURCE
#include "two.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static char path[64];

/* A file of nobody else, which has no name afterwards. */
static int open_shared(void)
{
	if (!path[0]) {
		snprintf(path, sizeof(path), "/tmp/tailcam-scenario-%d", getpid());
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		need(fd >= 0, path);
		return fd;
	}
	int fd = open(path, O_RDWR | O_CLOEXEC);

	need(fd >= 0, path);
	return fd;
}

static void victim_begins(struct actor *actor)
{
	truth.victim = actor->tid;
	sleep_until(begin + MSEC);
	truth.start = now();
}

/* ------------------------------------------------------------- locks of files */

static int its, mine;

static void hold_file(struct actor *actor)
{
	(void)actor;
	need(flock(its, LOCK_EX) == 0, "flock");
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	need(flock(its, LOCK_UN) == 0, "flock");
}

static void lock_file(struct actor *actor)
{
	victim_begins(actor);
	need(flock(mine, LOCK_EX) == 0, "flock");
	truth.end = now();
}

static void file_lock(void)
{
	its = open_shared();
	mine = open_shared();
	unlink(path);
	two("scn-holder", hold_file, lock_file);
}

/* Asks again after a while, as SQLite does: whoever gives the lock back wakes nobody. */
noinline void try_file(void)
{
	while (flock(mine, LOCK_EX | LOCK_NB) != 0) {
		need(errno == EWOULDBLOCK, "flock");
		usleep(3000);
	}
}

static void lock_file_by_tries(struct actor *actor)
{
	victim_begins(actor);
	try_file();
	truth.end = now();
}

static void file_try(void)
{
	its = open_shared();
	mine = open_shared();
	unlink(path);
	two("scn-holder", hold_file, lock_file_by_tries);
}

static void hold_record(struct actor *actor)
{
	struct flock all = {.l_type = F_WRLCK};

	(void)actor;
	need(fcntl(its, F_OFD_SETLK, &all) == 0, "F_OFD_SETLK");
	sleep_until(begin + LONG);
	released = now();
	all.l_type = F_UNLCK;
	need(fcntl(its, F_OFD_SETLK, &all) == 0, "F_OFD_SETLK");
}

static void lock_record(struct actor *actor)
{
	struct flock one = {.l_type = F_RDLCK, .l_len = 1};

	victim_begins(actor);
	need(fcntl(mine, F_OFD_SETLKW, &one) == 0, "F_OFD_SETLKW");
	truth.end = now();
}

/* Who holds it sleeps. */
static void record_lock(void)
{
	its = open_shared();
	mine = open_shared();
	unlink(path);
	two("scn-holder", hold_record, lock_record);
}

/* ------------------------------------------------------- mutexes that lend priority */

static pthread_mutex_t lending;

static void hold_lending(struct actor *actor)
{
	(void)actor;
	pthread_mutex_lock(&lending);
	sleep_until(begin + LONG); /* as long as it ran, the victim would spin */
	released = now();
	pthread_mutex_unlock(&lending);
}

static void lock_lending(struct actor *actor)
{
	victim_begins(actor);
	pthread_mutex_lock(&lending);
	truth.end = now();
	pthread_mutex_unlock(&lending);
}

static void pi_mutex(void)
{
	pthread_mutexattr_t how;

	pthread_mutexattr_init(&how);
	pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lending, &how);
	two("scn-holder", hold_lending, lock_lending);
}

/* ---------------------------------------------------------------- rwlocks */

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
#define READERS 3

static void read_locked(struct actor *actor)
{
	const uint64_t *until = actor->arg;

	sleep_until(begin - 10 * MSEC);
	pthread_rwlock_rdlock(&rwlock);
	sleep_until(begin);
	/* They overlap: there is always one. */
	for (uint64_t at = begin; at < *until; at += 8 * MSEC) {
		sleep_until(at + 8 * MSEC);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	}
	if (*until == begin + LONG)
		released = now();
	pthread_rwlock_unlock(&rwlock);
}

static void write_locked(struct actor *actor)
{
	victim_begins(actor);
	pthread_rwlock_wrlock(&rwlock);
	truth.end = now();
	pthread_rwlock_unlock(&rwlock);
}

/* Who writes waits for the last one that reads. */
static void rwlock_writer(void)
{
	struct actor readers[READERS], victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = write_locked};
	uint64_t until[READERS];

	begin = now() + 20 * MSEC;
	for (int i = 0; i < READERS; i++) {
		until[i] = begin + LONG - (uint64_t)i * 8 * MSEC;
		readers[i] = (struct actor){
			.comm = "scn-reader", .cpu = other, .fifo = MIDDLE, .act = read_locked, .arg = &until[i]};
		start(&readers[i]);
	}
	start(&victim);
	for (int i = 0; i < READERS; i++)
		join(&readers[i]);
	join(&victim);
	truth.culprit = readers[0].tid;
	truth.part = released - truth.start;
}

/* ----------------------------------------------- barriers, joins, semaphores */

static pthread_barrier_t barrier;

static void come_late(struct actor *actor)
{
	(void)actor;
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	pthread_barrier_wait(&barrier);
}

static void come_in_time(struct actor *actor)
{
	(void)actor;
	sleep_until(begin + MSEC / 2);
	pthread_barrier_wait(&barrier);
}

static void meet(struct actor *actor)
{
	victim_begins(actor);
	pthread_barrier_wait(&barrier);
	truth.end = now();
}

/* One of three is late. */
static void at_barrier(void)
{
	struct actor third = {.comm = "scn-third", .cpu = cpu, .fifo = LOW, .act = come_in_time};

	pthread_barrier_init(&barrier, NULL, 3);
	begin = now() + 20 * MSEC;
	start(&third);
	two("scn-late", come_late, meet);
	join(&third);
}

static void *end_late(void *arg)
{
	name_thread("scn-ending");
	pin_thread(other);
	*(pid_t *)arg = gettid();
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	return NULL;
}

static void join_thread(struct actor *actor)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, end_late, &truth.culprit);
	need(errno == 0, "start a thread");
	victim_begins(actor);
	pthread_join(thread, NULL);
	truth.end = now();
}

static void thread_join(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = join_thread};

	begin = now() + 20 * MSEC;
	start(&victim);
	join(&victim);
	truth.part = released - truth.start;
}

/* Two connections, which others have: the first that is given back is the victim's. */
static sem_t connections;

static void use_connection(struct actor *actor)
{
	const uint64_t *until = actor->arg;

	sem_wait(&connections);
	sleep_until(*until);
	if (*until == begin + LONG)
		released = now();
	sem_post(&connections);
	usleep(2000); /* who wakes others as well soon after looks as if all had waited for one condition */
}

static void want_connection(struct actor *actor)
{
	victim_begins(actor);
	sem_wait(&connections);
	truth.end = now();
	sem_post(&connections);
}

static void connection_pool(void)
{
	uint64_t until[2];
	struct actor users[2], victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = want_connection};

	need(sem_init(&connections, 0, 2) == 0, "make a semaphore");
	begin = now() + 20 * MSEC;
	for (int i = 0; i < 2; i++) {
		until[i] = begin + LONG + (uint64_t)i * LONG / 4;
		users[i] = (struct actor){
			.comm = "scn-user", .cpu = other, .fifo = MIDDLE, .act = use_connection, .arg = &until[i]};
		start(&users[i]);
	}
	start(&victim);
	join(&users[0]);
	join(&users[1]);
	join(&victim);
	truth.culprit = users[0].tid;
	truth.part = released - truth.start;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void wait_in_vain(struct actor *actor)
{
	pthread_mutex_lock(&mutex);
	victim_begins(actor);
	uint64_t at = now() + LONG;
	struct timespec limit = {.tv_sec = (time_t)(at / NSEC), .tv_nsec = (long)(at % NSEC)};

	need(pthread_cond_clockwait(&never, &mutex, CLOCK_MONOTONIC, &limit) == ETIMEDOUT, "wait in vain");
	truth.end = now();
	pthread_mutex_unlock(&mutex);
}

/* Nobody signals the condition: the time limit ends the wait. */
static void condition_in_vain(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wait_in_vain};

	begin = now() + 10 * MSEC;
	start(&victim);
	join(&victim);
}

/* ------------------------------------------------------------- System V, signals */

static int set;

static void post_late(struct actor *actor)
{
	struct sembuf post = {.sem_op = 1};

	(void)actor;
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	need(semop(set, &post, 1) == 0, "semop");
}

static void take_late(struct actor *actor)
{
	struct sembuf take = {.sem_op = -1};

	victim_begins(actor);
	need(semop(set, &take, 1) == 0, "semop");
	truth.end = now();
}

static void system_v(void)
{
	set = semget(IPC_PRIVATE, 1, 0600);
	need(set >= 0, "semget");
	two("scn-poster", post_late, take_late);
	semctl(set, 0, IPC_RMID);
}

static void signal_late(struct actor *actor)
{
	(void)actor;
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	syscall(SYS_tgkill, getpid(), truth.victim, SIGUSR1);
}

static void wait_for_signal(struct actor *actor)
{
	sigset_t signals;
	int number;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	need(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0, "block a signal");
	victim_begins(actor);
	need(sigwait(&signals, &number) == 0, "wait for a signal");
	truth.end = now();
}

static void signal_wait(void)
{
	two("scn-sender", signal_late, wait_for_signal);
}

/* --------------------------------------------------------- a queue of connections */

static int listener;
static struct sockaddr_un at = {.sun_family = AF_UNIX};
static socklen_t at_size;

static int connect_here(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(fd >= 0 && connect(fd, (struct sockaddr *)&at, at_size) == 0, "connect");
	return fd;
}

static void accept_late(struct actor *actor)
{
	(void)actor;
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	need(accept4(listener, NULL, NULL, SOCK_CLOEXEC) >= 0, "accept");
}

static void connect_late(struct actor *actor)
{
	victim_begins(actor);
	connect_here();
	truth.end = now();
}

/* As many wait to be accepted as may. */
static void unix_backlog(void)
{
	at_size = offsetof(struct sockaddr_un, sun_path) + 1 +
		  (socklen_t)snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "tailcam-scenario-%d", getpid());
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	need(listener >= 0 && bind(listener, (struct sockaddr *)&at, at_size) == 0 && listen(listener, 0) == 0,
	     "listen");
	connect_here();
	two("scn-acceptor", accept_late, connect_late);
}

const struct scenario share_scenarios[] = {
	{"file-lock", file_lock},
	{"file-try", file_try},
	{"record-lock", record_lock},
	{"pi-mutex", pi_mutex},
	{"rwlock", rwlock_writer},
	{"barrier", at_barrier},
	{"join", thread_join},
	{"semaphore", connection_pool},
	{"cond-timeout", condition_in_vain},
	{"unix-backlog", unix_backlog},
	{"system-v", system_v},
	{"signal-wait", signal_wait},
	{NULL, NULL},
};
