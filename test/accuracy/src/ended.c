/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that something else ended than what they were for. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int reply[2];
static uint64_t replied;

/* ----------------------------------------------------------------- signals */

static void nothing(int number)
{
	(void)number;
}

static void serve(struct actor *actor)
{
	(void)actor;
	spin_until(truth.start + LONG);
	replied = now();
	need(write(reply[1], "x", 1) == 1, "reply");
}

static void send_signals(struct actor *actor)
{
	(void)actor;
	for (uint64_t at = truth.start + 6 * MSEC; at < truth.start + LONG; at += 6 * MSEC) {
		sleep_until(at);
		syscall(SYS_tgkill, getpid(), truth.victim, SIGUSR1);
	}
}

/* The calls that it is made of end early. */
noinline void await_reply(void)
{
	char c;

	while (read(reply[0], &c, 1) != 1)
		;
}

/* The victim waits for a server, while others send it signals. */
static void signals(void)
{
	struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	struct actor server = {.comm = "scn-server", .cpu = other, .fifo = MIDDLE, .act = serve};
	struct actor noise = {.comm = "scn-signals", .cpu = cpu, .fifo = HIGH, .act = send_signals};

	need(pipe2(reply, O_CLOEXEC) == 0, "make a pipe");
	need(sigaction(SIGUSR1, &action, NULL) == 0, "handle a signal");
	become_victim();
	start(&server);
	start(&noise);
	truth.start = now();
	await_reply();
	done();
	join(&noise);
	join(&server);
	truth.culprit = server.tid;
	truth.part = replied - truth.start;
}

/* ------------------------------------------------------------------- frozen */

static void sleep_in_cgroup(struct truth *shared)
{
	char pid[16], c;

	snprintf(pid, sizeof(pid), "%d", getpid());
	put(argument, "cgroup.procs", pid);
	name_thread(victim_comm);
	pin_thread(cpu);
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	shared->victim = gettid();
	__atomic_store_n(&shared->start, now(), __ATOMIC_RELEASE);
	need(read(reply[0], &c, 1) == 1, "read");
	shared->end = now();
}

/* The victim's cgroup is frozen while it sleeps, and what it waits for comes meanwhile. */
static void frozen_sleep(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/tasks", argument);
	bool old = access(path, F_OK) == 0;
	struct truth *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	need(shared != MAP_FAILED, "map memory");
	/* Pipes are no freezable sleep: their readers wake up to be frozen. */
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, reply) == 0, "make a pair of sockets");
	name_thread("scn-freezer");
	pin_thread(other);
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		sleep_in_cgroup(shared);
		_exit(0);
	}
	while (!__atomic_load_n(&shared->start, __ATOMIC_ACQUIRE))
		usleep(50);
	exactly(shared->start + MSEC / 2);
	put(argument, old ? "freezer.state" : "cgroup.freeze", old ? "FROZEN" : "1");
	sleep_until(now() + MSEC);
	need(write(reply[1], "x", 1) == 1, "write");
	sleep_until(now() + LONG);
	put(argument, old ? "freezer.state" : "cgroup.freeze", old ? "THAWED" : "0");
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
	truth = *shared;
	truth.culprit = getpid();
}

/* ------------------------------------------------------------------- limits */

/* As of linux/sched/types.h, which glibc's sched.h does not go with. */
struct deadline {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void want_more(struct actor *actor)
{
	struct deadline d = {
		.size = sizeof(d),
		.policy = SCHED_DEADLINE,
		.runtime = 10 * MSEC,
		.deadline = 60 * MSEC,
		.period = 60 * MSEC,
	};

	(void)actor;
	need(syscall(SYS_sched_setattr, 0, &d, 0) == 0, "become a SCHED_DEADLINE task");
	look_for_gap(20 * MSEC, now() + 300 * MSEC);
	if (truth.end && gap_pieces != 1)
		truth.spoilt = "the victim ran for a moment";
}

/* A task that has used up what it may have of a period. */
static void deadline_limit(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = -1, .act = want_more};

	start(&victim);
	join(&victim);
}

/* What the victim waits for never comes, and it does not wait for ever. */
static void time_limit(void)
{
	struct pollfd fd = {.events = POLLIN};

	need(pipe2(reply, O_CLOEXEC) == 0, "make a pipe");
	fd.fd = reply[0];
	become_victim();
	need(poll(&fd, 1, LONG / MSEC) == 0, "poll");
	done();
}

const struct scenario ended_scenarios[] = {
	{"signals", signals}, {"frozen-sleep", frozen_sleep}, {"deadline", deadline_limit}, {"time-limit", time_limit},
	{NULL, NULL},
};
