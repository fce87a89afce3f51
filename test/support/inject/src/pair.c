/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for declared pairs, as functions and as static probes (usdt).
 * steps: a sequence of begins, ends and cancels of keys, `b7 +20 e7` with
 * pauses in ms. storm: threads on all CPUs begin and end a few keys at once.
 * calls: the same with a system call.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A static probe with a semaphore, as <sys/sdt.h> writes it. */
#define PROBE(name, arg1, arg2)                                                            \
	__asm__ volatile("990: nop\n"                                                      \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"                     \
			 ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                     \
			 "991: .asciz \"stapsdt\"\n992: .balign 4\n"                       \
			 "993: .8byte 990b\n.8byte 0\n.8byte pair_semaphore\n"             \
			 ".asciz \"inject\"\n.asciz \"" #name "\"\n.asciz \"8@%0 8@%1\"\n" \
			 "994: .balign 4\n.popsection"                                     \
			 :                                                                 \
			 : "nor"((uint64_t)(arg1)), "nor"((uint64_t)(arg2)))

__attribute__((section(".probes"))) volatile unsigned short pair_semaphore;

noinline void inject_pair_begin(uint64_t key, const char *what)
{
	PROBE(begin, key, what);
}

noinline long inject_pair_end(uint64_t key)
{
	__asm__ volatile("nop"); /* the kernel refuses a function's probe where a static one with a semaphore is */
	PROBE(end, key, 0);
	return (long)key - 100;
}

noinline void inject_pair_cancel(uint64_t key)
{
	__asm__ volatile("" : : "r"(key));
}

noinline int inject_pair_sleep(uint64_t until)
{
	sleep_until(until);
	return -3;
}

static int steps(int argc, char **argv)
{
	struct events events;

	events_init(&events, (size_t)argc);
	for (int i = 0; i < argc; i++) {
		uint64_t n = strtoull(argv[i] + 1, NULL, 10), start = now();

		if (argv[i][0] == 'b')
			inject_pair_begin(n, "what it is about");
		else if (argv[i][0] == 'e')
			inject_pair_end(n);
		else if (argv[i][0] == 'c')
			inject_pair_cancel(n);
		else
			inject_pair_sleep(start + n * 1000000);
		events_add(&events, "pair", argv[i], "inject_pair_sleep", start, now())->offset = pair_semaphore;
	}
	events_print(&events);
	return 0;
}

static long rounds, keys;
static bool by_call;
static int cpus[256], ncpus;
static pthread_barrier_t barrier;

static void *storm_main(void *arg)
{
	long id = (long)arg;

	pin_thread(cpus[id % ncpus]);
	pthread_barrier_wait(&barrier);
	for (long i = 0; i < rounds; i++) {
		uint64_t key = (uint64_t)((id + i) % keys);

		if (by_call) {
			raw(SYS_getpriority, (long)key + 1000, 0, 0, 0, 0, 0);
			continue;
		}
		inject_pair_begin(key, "storm");
		inject_pair_end(key);
	}
	return NULL;
}

static int storm(char **argv)
{
	long threads = number(argv[0], 1, 64);
	pthread_t thread[64];

	rounds = number(argv[1], 1, 100000000);
	keys = number(argv[2], 1, 1000);
	ncpus = allowed_cpus(cpus, 256);
	need(!pthread_barrier_init(&barrier, NULL, (unsigned int)threads), "make a barrier");
	for (long i = 0; i < threads; i++)
		need(!pthread_create(&thread[i], NULL, storm_main, (void *)i), "start a thread");
	for (long i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

int cmd_pair(int argc, char **argv)
{
	name_thread("inj-pair");
	if (argc > 2 && strcmp(argv[1], "steps") == 0)
		return steps(argc - 2, argv + 2);
	if (argc == 5 && (strcmp(argv[1], "storm") == 0 || strcmp(argv[1], "calls") == 0)) {
		by_call = argv[1][0] == 'c';
		return storm(argv + 2);
	}
	fprintf(stderr, "pair: steps bN|eN|cN|+MS..., or storm|calls THREADS rounds keys\n");
	return 1;
}
