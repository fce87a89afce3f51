/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans by the header that is shipped. Prints an event for each, as the
 * injectors do: func is the key.
 *
 *	span run PREFIX threads rounds hold_us	threads that begin and end
 *	span hop PREFIX rounds hold_us		one thread begins, another ends
 *	span pair KEY hold_us			one span; waits for a byte on stdin before each end of it
 *	span storm KEY threads rounds		one key for all, as fast as it goes; prints ends
 *	span flood PREFIX count			begins, and never ends
 *	span subuids PREFIX uids count		the same as each of so many users of a user namespace of its own; waits for
 *						a byte on stdin, as somebody must map them
 *	span bad				keys that are none
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tailcam.h"

static const char *prefix;
static int rounds, hold_us;
static pthread_mutex_t out = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void hold(void)
{
	struct timespec t = {hold_us / 1000000, hold_us % 1000000 * 1000L};

	nanosleep(&t, NULL);
}

static void event(const char *key, int tid, uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&out);
	printf("{\"track\":\"span\",\"kind\":\"over\",\"func\":\"%s\",\"pid\":%d,\"tid\":%d,\"cpu\":-1,"
	       "\"start_ns\":%llu,\"end_ns\":%llu,\"offset\":-1}\n",
	       key, getpid(), tid, (unsigned long long)start, (unsigned long long)end);
	fflush(stdout);
	pthread_mutex_unlock(&out);
}

static void *runner(void *arg)
{
	char key[64];

	(void)arg;
	for (int i = 0; i < rounds; i++) {
		uint64_t start, end;

		snprintf(key, sizeof(key), "%s-%d-%d", prefix, gettid(), i);
		start = now();
		tailcam_begin(key);
		hold();
		tailcam_end(key);
		end = now();
		event(key, gettid(), start, end);
	}
	return NULL;
}

static pthread_barrier_t meet;
static uint64_t begun;

static void *ender(void *arg)
{
	char key[64];

	(void)arg;
	for (int i = 0; i < rounds; i++) {
		snprintf(key, sizeof(key), "%s-hop-%d", prefix, i);
		pthread_barrier_wait(&meet);
		hold();
		tailcam_end(key);
		event(key, gettid(), begun, now());
		pthread_barrier_wait(&meet);
	}
	return NULL;
}

static void *storm(void *arg)
{
	(void)arg;
	for (int i = 0; i < rounds; i++) {
		tailcam_begin(prefix);
		tailcam_end(prefix);
	}
	return NULL;
}

static int flood(const char *name, int user, long count)
{
	char key[64];

	for (long i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s-%d-%ld", name, user, i);
		tailcam_begin(key);
	}
	return 0;
}

static int subuids(const char *name, int users, long count)
{
	int status;

	if (unshare(CLONE_NEWUSER)) {
		perror("unshare");
		return 1;
	}
	printf("unshared\n");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (int u = 1; u <= users; u++) {
		pid_t child = fork();

		if (child < 0)
			return 1;
		if (!child) {
			if (setresuid(u, u, u)) {
				perror("setresuid");
				_exit(1);
			}
			_exit(flood(name, u, count));
		}
		if (waitpid(child, &status, 0) < 0 || status)
			return 1;
	}
	return 0;
}

static void together(void *(*f)(void *), int threads)
{
	pthread_t t[64];

	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, f, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

static void raw(const void *text, long op)
{
	long ret = 439;
	register long flags __asm__("r10") = 0;

	__asm__ volatile("syscall" : "+a"(ret) : "D"(-1L), "S"(text), "d"(op), "r"(flags) : "rcx", "r11", "memory");
}

int main(int argc, char **argv)
{
	if (argc > 2)
		prefix = argv[2];
	if (argc == 6 && !strcmp(argv[1], "run")) {
		rounds = atoi(argv[4]);
		hold_us = atoi(argv[5]);
		together(runner, atoi(argv[3]));
	} else if (argc == 5 && !strcmp(argv[1], "hop")) {
		pthread_t t;
		char key[64];

		rounds = atoi(argv[3]);
		hold_us = atoi(argv[4]);
		pthread_barrier_init(&meet, NULL, 2);
		pthread_create(&t, NULL, ender, NULL);
		for (int i = 0; i < rounds; i++) {
			snprintf(key, sizeof(key), "%s-hop-%d", prefix, i);
			begun = now();
			tailcam_begin(key);
			pthread_barrier_wait(&meet);
			pthread_barrier_wait(&meet);
		}
		pthread_join(t, NULL);
	} else if (argc == 4 && !strcmp(argv[1], "pair")) {
		uint64_t start = now();

		hold_us = atoi(argv[3]);
		tailcam_begin(prefix);
		printf("begun\n");
		fflush(stdout);
		getchar();
		hold();
		tailcam_end(prefix);
		event(prefix, getpid(), start, now());
	} else if (argc == 5 && !strcmp(argv[1], "storm")) {
		rounds = atoi(argv[4]);
		together(storm, atoi(argv[3]));
	} else if (argc == 4 && !strcmp(argv[1], "flood")) {
		return flood(prefix, getuid(), atol(argv[3]));
	} else if (argc == 5 && !strcmp(argv[1], "subuids")) {
		return subuids(prefix, atoi(argv[3]), atol(argv[4]));
	} else if (argc == 2 && !strcmp(argv[1], "bad")) {
		char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char longer[100];

		memset(longer, 'x', sizeof(longer) - 1);
		longer[99] = 0;
		tailcam_begin("");
		tailcam_begin(NULL);
		tailcam_begin(longer);
		raw((void *)8, 0x74630001);
		raw((void *)-1L, 0x74630001);
		mprotect(page + 4096, 4096, PROT_NONE);
		memset(page, 'y', 4096);
		raw(page + 4090, 0x74630001); /* no NUL before the end of memory */
		raw("unknown op", 0x74630009);
	} else {
		return 1;
	}
	return 0;
}
