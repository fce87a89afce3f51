/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that publishes contexts of its threads.
 *
 *	threadctx [LIBRARY] place         two threads print thread pointer and address of the variable, and wait for the end
 *	                                  of standard input
 *	threadctx [LIBRARY] work ROUNDS US
 *	                                  a thread and then the main thread sleep ROUNDS times for US microseconds, each time
 *	                                  with another context, and print it
 *	threadctx [LIBRARY] hostile US    sleeps once with each kind of record that must not be believed, then with a good one
 *	threadctx [LIBRARY] torn ROUNDS US
 *	                                  sleeps while another thread writes the record all the time
 *	threadctx [LIBRARY] fork US       as work, once, in a child
 *
 * Each waits for a line on standard input before it begins. It prints JSON lines.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "threadctx.h"

#ifdef OPEN_LIBRARY
static struct record **(*variable_of)(void);
#define variable variable_of
#endif

static void publish(struct record *r)
{
	struct record *volatile *v = (struct record *volatile *)variable();

	*v = r;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void fill(struct record *r, uint8_t seed)
{
	memset(r->trace_id, seed, sizeof(r->trace_id));
	memset(r->span_id, seed ^ 0xff, sizeof(r->span_id));
	r->trace_id[15] = 1;
	r->span_id[7] = 1;
	r->valid = 1;
}

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void hex(const uint8_t *id, int n)
{
	for (int i = 0; i < n; i++)
		printf("%02x", id[i]);
}

/* Sleeps, and prints what has to be told of it; r: NULL, nothing. */
static void slow(const char *kind, struct record *r, long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	uint64_t start = now_ns(), end;

	syscall(SYS_nanosleep, &t, NULL);
	end = now_ns();
	pthread_mutex_lock(&printing);
	printf("{\"kind\": \"%s\", \"pid\": %d, \"tid\": %ld, \"start_ns\": %lu, \"end_ns\": %lu, \"trace_id\": \"",
	       kind, getpid(), syscall(SYS_gettid), start, end);
	if (r)
		hex(r->trace_id, sizeof(r->trace_id));
	printf("\", \"span_id\": \"");
	if (r)
		hex(r->span_id, sizeof(r->span_id));
	printf("\"}\n");
	fflush(stdout);
	pthread_mutex_unlock(&printing);
}

static long rounds, pause_us;

static void *work(void *seed)
{
	struct record r = {0};

	for (long i = 0; i < rounds; i++) {
		r.valid = 0;
		atomic_signal_fence(memory_order_seq_cst);
		fill(&r, (uintptr_t)seed + i);
		publish(&r);
		slow("good", &r, pause_us);
	}
	publish(NULL);
	slow("detached", NULL, pause_us);
	return NULL;
}

static void *place(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&printing);
	printf("{\"tid\": %ld, \"pointer\": %lu, \"variable\": %lu}\n", syscall(SYS_gettid),
	       (unsigned long)__builtin_thread_pointer(), (unsigned long)variable());
	fflush(stdout);
	pthread_mutex_unlock(&printing);
	while (getchar() != EOF)
		;
	return NULL;
}

static void hostile(void)
{
	static struct record zero_trace, zero_span, valid_2, invalid, odd, good;
	static uint8_t bytes[64];
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	fill(&zero_trace, 1);
	memset(zero_trace.trace_id, 0, sizeof(zero_trace.trace_id));
	fill(&zero_span, 2);
	memset(zero_span.span_id, 0, sizeof(zero_span.span_id));
	fill(&valid_2, 3);
	valid_2.valid = 2;
	fill(&invalid, 4);
	invalid.valid = 0;
	fill(&odd, 5);
	memcpy(bytes + 1, &odd, sizeof(odd));
	fill(&good, 6);
	memset(edge, 1, 8192);
	mprotect(edge + 4096, 4096, PROT_NONE);
	struct {
		const char *kind;
		void *record;
	} list[] = {
		{"zero trace", &zero_trace},
		{"zero span", &zero_span},
		{"valid is 2", &valid_2},
		{"invalid", &invalid},
		{"odd address", bytes + 1},
		{"no access", page},
		{"half of it no access", edge + 4096 - 24},
		{"low address", (void *)16},
		{"kernel address", (void *)0xffffffff81000000},
		{"no canonical address", (void *)0x8000000000000000},
		{"end of addresses", (void *)-8},
		{"nothing", NULL},
	};

	for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		publish(list[i].record);
		slow(list[i].kind, NULL, pause_us);
	}
	publish(&good);
	slow("good", &good, pause_us);
}

static struct record shared;
static atomic_bool stop;

/* Writes records as an SDK does, but from another thread: all bytes of an id are the same. */
static void *tear(void *unused)
{
	volatile struct record *r = &shared;

	(void)unused;
	for (uint8_t seed = 1; !stop; seed = seed % 250 + 1) {
		r->valid = 0;
		atomic_thread_fence(memory_order_seq_cst);
		for (unsigned i = 0; i < sizeof(r->trace_id); i++)
			r->trace_id[i] = seed;
		for (unsigned i = 0; i < sizeof(r->span_id); i++)
			r->span_id[i] = seed;
		atomic_thread_fence(memory_order_seq_cst);
		r->valid = 1;
	}
	return NULL;
}

static void torn(void)
{
	pthread_t other;

	publish(&shared);
	pthread_create(&other, NULL, tear, NULL);
	for (long i = 0; i < rounds; i++)
		slow("torn", NULL, pause_us);
	stop = 1;
	pthread_join(other, NULL);
}

static void usage(void)
{
	fprintf(stderr, "usage: threadctx [LIBRARY] place | work ROUNDS US | hostile US | torn ROUNDS US | fork US\n");
	exit(2);
}

int main(int argc, char **argv)
{
	pthread_t other;
	char line[16];

#ifdef OPEN_LIBRARY
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	variable_of = (struct record * *(*)(void)) dlsym(library, "variable");
	argv++;
	argc--;
#endif
	if (argc < 2)
		usage();
	publish(NULL); /* as an SDK does at its start: its module has memory for this thread */
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (!strcmp(argv[1], "place")) {
		pthread_create(&other, NULL, place, NULL);
		place(NULL);
		pthread_join(other, NULL);
	} else if (!strcmp(argv[1], "work") && argc == 4) {
		rounds = atol(argv[2]);
		pause_us = atol(argv[3]);
		pthread_create(&other, NULL, work, (void *)100);
		pthread_join(other, NULL);
		work((void *)1);
	} else if (!strcmp(argv[1], "hostile") && argc == 3) {
		pause_us = atol(argv[2]);
		hostile();
	} else if (!strcmp(argv[1], "torn") && argc == 4) {
		rounds = atol(argv[2]);
		pause_us = atol(argv[3]);
		torn();
	} else if (!strcmp(argv[1], "fork") && argc == 3) {
		rounds = 1;
		pause_us = atol(argv[2]);
		if (!fork()) {
			work((void *)50);
			return 0;
		}
		wait(NULL);
	} else {
		usage();
	}
	return 0;
}
