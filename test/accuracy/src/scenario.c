/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scenario: one known latency. It begins when a line comes on standard input,
 * so that what has to be prepared for its process can be.
 */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct truth truth;
const char *victim_comm, *argument;
int cpu, other;

static void tell(void)
{
	printf("{\"victim\":%d,\"culprit\":%d,\"root\":%d,\"start_ns\":%llu,\"end_ns\":%llu,\"part_ns\":%llu,\"request\":\"%u.%u\",\"trace\":\"%s\",\"behind\":\"%s\",\"crowded\":%s,\"spoilt\":\"%s\"}\n",
	       truth.victim, truth.culprit, truth.root, (unsigned long long)truth.start, (unsigned long long)truth.end,
	       (unsigned long long)(truth.part ? truth.part : truth.end - truth.start), (unsigned)truth.request,
	       (unsigned)(truth.request >> 32), truth.trace ? truth.trace : "", truth.behind ? truth.behind : "",
	       truth.crowded ? "true" : "false", truth.spoilt ? truth.spoilt : "");
	fflush(stdout);
}

/*
 * Ordinary tasks of a scenario share a cgroup that gets most of the CPU's time,
 * if the harness has made one: what they do to each other stays the same.
 */
static void enter_own_group(pid_t tid)
{
	const char *group = getenv("SCENARIO_GROUP");
	char path[512], text[16];

	if (!group)
		return;
	snprintf(path, sizeof(path), "%s/tasks", group);
	bool old = access(path, F_OK) == 0;
	snprintf(text, sizeof(text), "%d", old ? tid : getpid());
	put(group, old ? "tasks" : "cgroup.procs", text);
}

static __attribute__((noreturn)) void *actor_main(void *arg)
{
	struct actor *actor = arg;

	name_thread(actor->comm);
	if (actor->cpu >= 0)
		pin_thread(actor->cpu);
	if (actor->nice)
		need(setpriority(PRIO_PROCESS, 0, actor->nice) == 0, "set a nice value");
	/* Whatever the thread that started it is. */
	struct sched_param param = {.sched_priority = actor->fifo};
	need(sched_setscheduler(0, actor->fifo ? SCHED_FIFO : SCHED_OTHER, &param) == 0, "set a scheduling class");
	actor->tid = gettid();
	if (!actor->fifo)
		enter_own_group(actor->tid);
	actor->act(actor);
	/* What the victim does from here on is nobody's latency. */
	if (actor->comm == victim_comm)
		name_thread("scn-idle");
	sem_post(&actor->done);
	for (;;)
		pause();
}

void start(struct actor *actor)
{
	pthread_t thread;

	need(sem_init(&actor->done, 0, 0) == 0, "make a semaphore");
	errno = pthread_create(&thread, NULL, actor_main, actor);
	need(errno == 0, "start a thread");
	while (!actor->tid)
		usleep(200);
}

void join(struct actor *actor)
{
	while (sem_wait(&actor->done) != 0)
		;
}

void become_victim(void)
{
	pin_thread(cpu);
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	name_thread(victim_comm);
	truth.victim = gettid();
	truth.start = now();
}

void done(void)
{
	truth.end = now();
	name_thread("scn-idle");
}

void exactly(uint64_t at)
{
	sleep_until(at - MSEC / 2);
	spin_until(at);
}

void put(const char *dir, const char *file, const char *text)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	need(fd >= 0, path);
	need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(fd);
}

/* Two looks at the clock that are further apart than this were interrupted. */
#define APART 2000

void spin_noting(struct stretches *s, uint64_t until)
{
	uint64_t from = now(), last = from;
	const int room = sizeof(s->at) / sizeof(s->at[0]);
	struct switches before = switches();

	while (last < until) {
		uint64_t at = now();

		if (at - last > APART) {
			struct switches after = switches();
			bool stayed = after.preempted + after.slept == before.preempted + before.slept;

			before = after;
			/* No interrupt takes so long: the host did, also where it accounts for nothing. */
			if (stayed && at - last > MSEC)
				truth.spoilt = "a CPU stood still";
			if (!stayed) { /* else it was interrupted, for what may be all that a slow host's tick takes */
				if (s->count < room)
					s->at[s->count++] = (struct stretch){from, last};
				from = at;
			}
		}
		last = at;
	}
	if (s->count < room)
		s->at[s->count++] = (struct stretch){from, last};
}

uint64_t overlap(const struct stretches *s, uint64_t from, uint64_t to)
{
	uint64_t sum = 0;

	for (int i = 0; i < s->count; i++) {
		uint64_t lo = s->at[i].from > from ? s->at[i].from : from;
		uint64_t hi = s->at[i].to < to ? s->at[i].to : to;

		if (lo < hi)
			sum += hi - lo;
	}
	return sum;
}

long gap_pieces;

void look_for_gap(uint64_t least, uint64_t until)
{
	uint64_t last = now();
	struct switches before = switches();

	truth.victim = gettid();
	while (last < until && truth.end - truth.start < least) {
		uint64_t at = now();

		if (at - last > APART) {
			struct switches after = switches();

			if (at - last > truth.end - truth.start) {
				truth.start = last;
				truth.end = at;
				gap_pieces = after.preempted + after.slept - before.preempted - before.slept;
			}
			before = after;
			at = now();
		}
		last = at;
	}
	if (truth.end - truth.start < least)
		truth.spoilt = "the victim was not kept off its CPU";
}

int main(int argc, char **argv)
{
	static const struct scenario *const lists[] = {
		cpu_scenarios,	   held_scenarios,    wait_scenarios,	 peer_scenarios,   disk_scenarios,
		pattern_scenarios, tcp_scenarios,     limit_scenarios,	 turn_scenarios,   ended_scenarios,
		share_scenarios,   process_scenarios, crowd_scenarios,	 bulk_scenarios,   postgres_scenarios,
		service_scenarios, asked_scenarios,   request_scenarios, served_scenarios, kernel_lock_scenarios,
	};
	char line[8];

	if (argc < 5) {
		fprintf(stderr, "usage: scenario NAME VICTIM_COMM CPU OTHER_CPU [ARGUMENT]\n");
		return 2;
	}
	victim_comm = argv[2];
	cpu = (int)number(argv[3], 0, 1 << 16);
	other = (int)number(argv[4], 0, 1 << 16);
	argument = argc > 5 ? argv[5] : NULL;
	name_thread("scn-main");
	/* So that threads begin in time, whatever else there is to do on the machine. */
	need(fifo_thread(HIGHEST) == 0, "become real-time");
	/* And all CPUs may be used, those included that the harness may not use. */
	cpu_set_t all;
	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all); /* but for those that its cpuset does not have */
	need(read(STDIN_FILENO, line, sizeof(line)) > 0, "wait for the word to begin");
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (const struct scenario *s = lists[i]; s->name; s++) {
			if (strcmp(s->name, argv[1]) != 0)
				continue;
			s->run();
			tell();
			/* All stay until the snapshot is there. */
			while (read(STDIN_FILENO, line, sizeof(line)) > 0)
				;
			_exit(0);
		}
	}
	fprintf(stderr, "scenario: there is no scenario %s\n", argv[1]);
	return 2;
}
