/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that want to run and may not, without having slept: preempted ones,
 * and new ones that have never run.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CPUS 1024

/* One CPU: a victim that works all the time, and a hog that takes it away. */
struct pair {
	int cpu;
	long over, under;
	uint64_t over_ns, under_ns;
	uint32_t running; /* the victim works */
	uint32_t done;	  /* the hog has had its rounds */
	uint32_t round;	  /* its number, from 1 */
	bool alone;	  /* the hog was not preempted itself */
	struct events events;
	pthread_t victim, hog;
};

/* Gives the last clock reading before the victim was away for a while, from *before on, and returns the first after. */
noinline uint64_t inject_preempt_victim(uint64_t gap, uint32_t *stop, uint64_t *before)
{
	uint64_t last = *before;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		uint64_t next = now();

		if (next - last > gap) {
			*before = last;
			return next;
		}
		last = next;
	}
	return 0;
}

static void *victim_main(void *arg)
{
	struct pair *self = arg;
	uint32_t seen = 0;

	pin_thread(self->cpu);
	need(fifo_thread(1) == 0, "make a victim SCHED_FIFO");
	name_thread("inj-preempt");
	__atomic_store_n(&self->running, 1, __ATOMIC_RELEASE);
	for (;;) {
		struct switches was = switches();
		uint64_t start = now();
		uint64_t end = inject_preempt_victim(self->under_ns / 2, &self->done, &start);
		struct switches is = switches();

		if (!end)
			break;
		uint32_t round = __atomic_load_n(&self->round, __ATOMIC_ACQUIRE);
		bool over = round && is_over(round - 1, self->over, self->under);
		const char *kind = kind_of(over, end - start, over ? self->over_ns : self->under_ns);

		/* Away for another reason, or in pieces. */
		if (round != seen + 1 || is.preempted != was.preempted + 1 || is.slept != was.slept)
			kind = "spoilt";
		seen = round;
		events_add(&self->events, "wakeup", kind, "inject_preempt_victim", start, end)->alone = self->alone;
		/* The CPU belongs to others, too, or the kernel takes it from real-time threads. */
		name_thread("inj-idle");
		sleep_until(end + self->under_ns / 4);
		name_thread("inj-preempt");
	}
	name_thread("inj-idle");
	return NULL;
}

noinline void inject_preempt_hog(uint64_t until)
{
	spin_until(until);
}

static void *hog_main(void *arg)
{
	struct pair *self = arg;

	pin_thread(self->cpu);
	need(fifo_thread(50) == 0, "make a hog SCHED_FIFO");
	name_thread("inj-hog");
	while (!__atomic_load_n(&self->running, __ATOMIC_ACQUIRE))
		sleep_until(now() + 100000);
	for (long i = 0; i < self->over + self->under; i++) {
		uint64_t delay = is_over(i, self->over, self->under) ? self->over_ns : self->under_ns;

		sleep_until(now() + self->under_ns / 2 + delay / 8);
		__atomic_store_n(&self->round, (uint32_t)i + 1, __ATOMIC_RELEASE);
		struct switches before = switches();
		inject_preempt_hog(now() + delay);
		self->alone = switches().preempted == before.preempted;
	}
	sleep_until(now() + self->over_ns);
	__atomic_store_n(&self->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

int cmd_preempt(int argc, char **argv)
{
	static int cpus[MAX_CPUS];

	if (argc != 5)
		die("preempt wants N_OVER over_us N_UNDER under_us, for each CPU");
	int count = allowed_cpus(cpus, MAX_CPUS);
	struct pair *pair = calloc((size_t)count, sizeof(*pair));

	need(pair, "memory for threads");
	for (int i = 0; i < count; i++) {
		struct pair *p = &pair[i];

		p->cpu = cpus[i];
		p->over = number(argv[1], 0, 100000);
		p->over_ns = 1000 * (uint64_t)number(argv[2], 1, 500000);
		p->under = number(argv[3], 0, 100000);
		p->under_ns = 1000 * (uint64_t)number(argv[4], 1, 500000);
		/* Others may take the CPU away as well. */
		events_init(&p->events, 1000 + 10 * (size_t)(p->over + p->under));
		need(pthread_create(&p->victim, NULL, victim_main, p) == 0, "make a thread");
		need(pthread_create(&p->hog, NULL, hog_main, p) == 0, "make a thread");
	}
	for (int i = 0; i < count; i++) {
		pthread_join(pair[i].hog, NULL);
		pthread_join(pair[i].victim, NULL);
		events_print(&pair[i].events);
	}
	return 0;
}

static int newtask_child(void *end)
{
	__atomic_store_n((uint64_t *)end, now(), __ATOMIC_RELEASE);
	_exit(0);
}

/*
 * Works on for a while after it has made a child, which may run on this CPU only. They share their
 * memory: to copy it takes time before the child is ready, and after it runs.
 */
noinline pid_t inject_newtask_parent(uint64_t *end, uint64_t delay)
{
	static _Alignas(16) char stack[1 << 16];
	uint64_t start = now();
	pid_t child = clone(newtask_child, stack + sizeof(stack), CLONE_VM | SIGCHLD, end);

	spin_until(start + delay);
	return child;
}

int cmd_newtask(int argc, char **argv)
{
	struct events events;
	int cpu;

	if (argc != 3)
		die("newtask wants N_OVER over_us");
	long count = number(argv[1], 1, 100000);
	uint64_t delay = 1000 * (uint64_t)number(argv[2], 1, 500000);
	uint64_t *end = mmap(NULL, sizeof(*end), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	need(end != MAP_FAILED, "shared memory");
	need(allowed_cpus(&cpu, 1) == 1, "find a CPU");
	events_init(&events, (size_t)count);
	pin_thread(cpu);
	need(fifo_thread(1) == 0, "become SCHED_FIFO");
	for (long i = 0; i < count; i++) {
		*end = 0;
		name_thread("inj-new");
		struct switches before = switches();
		uint64_t start = now();
		pid_t child = inject_newtask_parent(end, delay);
		bool alone = switches().preempted == before.preempted;

		need(child > 0, "fork");
		name_thread("inj-parent");
		need(waitpid(child, NULL, 0) == child, "wait for a child");
		struct event *e = events_add(&events, "wakeup", kind_of(true, *end - start, delay),
					     "inject_newtask_parent", start, *end);
		strcpy(e->comm, "inj-new");
		e->pid = e->tid = child;
		e->alone = alone;
		sleep_until(now() + delay / 4);
	}
	events_print(&events);
	return 0;
}
