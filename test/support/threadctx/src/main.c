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
 *	threadctx [LIBRARY] woken ROUNDS US
 *	                                  a thread is woken by the main thread each US microseconds; each has its context
 *	threadctx [LIBRARY] behind ROUNDS US
 *	                                  a thread cannot run as the main thread does; needs CAP_SYS_NICE
 *	threadctx [LIBRARY] tokens SOCKET ROUNDS US
 *	                                  as work, but with a token of tailcam's for each sleep
 *	threadctx [LIBRARY] reads ROUNDS FILE
 *	                                  as work, but each time reads a block of a file from its disk
 *
 * Each waits for a line on standard input before it begins. It prints JSON lines.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tailcam.h"
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
	r->attributes_bytes = 0;
	r->route[0] = 0;
	r->valid = 1;
}

/* Keys of attributes are numbers: of these names, which the process context has. */
static const char *const names[] = {"user.id", "http.route", "http.request.method"};
enum { USER_ID, ROUTE, METHOD, NO_NAME = 200 };

static void attribute(struct record *r, uint8_t key, const char *value)
{
	uint8_t *to = r->attributes + r->attributes_bytes;

	to[0] = key;
	to[1] = strlen(value);
	memcpy(to + 2, value, to[1]);
	r->attributes_bytes += 2 + to[1];
	if (key == ROUTE)
		strcpy(r->route, value);
}

static void fill_attributes(struct record *r, uint8_t seed)
{
	char route[32];

	snprintf(route, sizeof(route), "/items/%u/{id}", seed);
	attribute(r, USER_ID, "annabel");
	attribute(r, ROUTE, route);
}

/* A field of protobuf: a tag, a length, the bytes. */
static size_t field(uint8_t *to, unsigned number, const void *value, size_t bytes)
{
	to[0] = number << 3 | 2;
	to[1] = bytes; /* less than 128 */
	memcpy(to + 2, value, bytes);
	return bytes + 2;
}

/* An attribute of a process context; kind: 1 a string, 5 an array. */
static size_t context_attribute(uint8_t *to, const char *key, unsigned kind, const void *value, size_t bytes)
{
	uint8_t any[128], pair[256];
	size_t n = field(any, kind, value, bytes), at = field(pair, 1, key, strlen(key));

	at += field(pair + at, 2, any, n);
	return field(to, 2, pair, at);
}

/* Publishes the names of attributes: OpenTelemetry's OTEP 4719. */
static void publish_names(void)
{
	struct {
		char signature[8];
		uint32_t version, bytes;
		uint64_t published, payload;
		uint8_t data[256];
	} *context;
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t list[128], any[64];
	size_t n = 0, at;

	if (fd < 0 || ftruncate(fd, 4096))
		exit(1);
	context = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (context == MAP_FAILED)
		exit(1);
	close(fd);
	madvise(context, 4096, MADV_DONTFORK);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		at = field(any, 1, names[i], strlen(names[i]));
		n += field(list + n, 1, any, at);
	}
	at = context_attribute(context->data, "threadlocal.schema_version", 1, "tls_v1", 6);
	at += context_attribute(context->data + at, "threadlocal.attribute_key_map", 5, list, n);
	memcpy(context->signature, "OTEL_CTX", 8);
	context->version = 2;
	context->bytes = at;
	context->payload = (uintptr_t)context->data;
	atomic_thread_fence(memory_order_seq_cst);
	context->published = 1;
}

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void hex(const uint8_t *id, int n)
{
	for (int i = 0; i < n; i++)
		printf("%02x", id[i]);
}

/* Prints what has to be told of a wait: r is the record of who waited, other that of who was in the way; NULL: none. */
static void report(const char *kind, struct record *r, struct record *other, uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&printing);
	printf("{\"kind\": \"%s\", \"pid\": %d, \"tid\": %ld, \"start_ns\": %lu, \"end_ns\": %lu, \"trace_id\": \"",
	       kind, getpid(), syscall(SYS_gettid), start, end);
	if (r)
		hex(r->trace_id, sizeof(r->trace_id));
	printf("\", \"span_id\": \"");
	if (r)
		hex(r->span_id, sizeof(r->span_id));
	printf("\", \"other_trace_id\": \"");
	if (other)
		hex(other->trace_id, sizeof(other->trace_id));
	printf("\", \"route\": \"%s\"}\n", r ? r->route : "");
	fflush(stdout);
	pthread_mutex_unlock(&printing);
}

static void pause_for(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	syscall(SYS_nanosleep, &t, NULL);
}

/* Sleeps, and tells; r: NULL, nothing. */
static void slow(const char *kind, struct record *r, long us)
{
	uint64_t start = now_ns();

	pause_for(us);
	report(kind, r, NULL, start, now_ns());
}

static long rounds, pause_us;

static void *work(void *seed)
{
	struct record r = {0};

	for (long i = 0; i < rounds; i++) {
		r.valid = 0;
		atomic_signal_fence(memory_order_seq_cst);
		fill(&r, (uintptr_t)seed + i);
		fill_attributes(&r, (uintptr_t)seed + i);
		publish(&r);
		slow("good", &r, pause_us);
	}
	publish(NULL);
	slow("detached", NULL, pause_us);
	return NULL;
}

static void tokens(const char *socket)
{
	char error[256];
	struct tailcam *h = tailcam_open(socket, NULL, error, sizeof(error));
	struct record r = {0};
	uint64_t token;

	if (!h) {
		fprintf(stderr, "%s\n", error);
		exit(1);
	}
	poll(NULL, 0, 500); /* the daemon looks at it for the first time */
	for (long i = 0; i < rounds; i++) {
		token = tailcam_token(h, "request");
		tailcam_switch(h, token);
		fill(&r, i + 1);
		fill_attributes(&r, i + 1);
		publish(&r);
		slow("good", &r, pause_us);
		tailcam_end_token(h, token, NULL);
		poll(NULL, 0, 200); /* two switches later its slot knows nothing of this one */
	}
	fgetc(stdin);
	tailcam_close(h);
}

static const char *file;

static void *reads(void *seed)
{
	int fd = open(file, O_RDONLY | O_DIRECT);
	struct record r = {0};
	void *block = NULL;
	uint64_t start;

	if (fd < 0 || posix_memalign(&block, 4096, 4096))
		exit(1);
	for (long i = 0; i < rounds; i++) {
		r.valid = 0;
		atomic_signal_fence(memory_order_seq_cst);
		fill(&r, (uintptr_t)seed + i);
		publish(&r);
		start = now_ns();
		if (pread(fd, block, 4096, i % 16 * 4096) != 4096)
			exit(1);
		report("good", &r, NULL, start, now_ns());
	}
	free(block);
	close(fd);
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
	static struct record none, cut, unknown, twice, large, full;
	static uint8_t bytes[sizeof(odd) + 1];
	struct record *beyond;
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
	fill_attributes(&good, 6);
	memset(edge, 1, 8192);
	beyond = (void *)(edge + 4096 - 28 - 4); /* its attributes end where there is no access */
	fill(beyond, 7);
	fill(&none, 7);
	beyond->attributes_bytes = 40;
	fill(&cut, 8);
	attribute(&cut, ROUTE, "/cut");
	attribute(&cut, ROUTE, "/this is longer");
	cut.attributes_bytes -= 3;
	strcpy(cut.route, "/cut");
	fill(&unknown, 9);
	attribute(&unknown, NO_NAME, "nobody");
	attribute(&unknown, ROUTE, "/known");
	fill(&twice, 10);
	attribute(&twice, ROUTE, "/first");
	attribute(&twice, ROUTE, "/last");
	fill(&large, 11);
	attribute(&large, ROUTE, "/large");
	large.attributes_bytes = 1025; /* more than is read */
	large.route[0] = 0;
	fill(&full, 12);
	while (full.attributes_bytes < 1000)
		attribute(&full, METHOD, "");
	attribute(&full, ROUTE, "/at the very end/1234");
	full.attributes_bytes = 1024;
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
	publish(beyond);
	slow("good", &none, pause_us);
	struct record *believed[] = {&cut, &unknown, &twice, &large, &full, &good};

	for (unsigned i = 0; i < sizeof(believed) / sizeof(believed[0]); i++) {
		publish(believed[i]);
		slow("good", believed[i], pause_us);
	}
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
		r->attributes[0] = ROUTE;
		r->attributes[1] = 250;
		for (unsigned i = 0; i < 250; i++)
			r->attributes[2 + i] = 'a' + seed % 26;
		r->attributes_bytes = 252;
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

static struct record waiting, other;
static int ends[2];

/* Waits for the other thread. */
static void *reader(void *unused)
{
	uint64_t start;
	char c;

	(void)unused;
	publish(&waiting);
	for (long i = 0; i < rounds; i++) {
		start = now_ns();
		if (read(ends[0], &c, 1) != 1)
			exit(1);
		report("woken", &waiting, &other, start, now_ns());
	}
	return NULL;
}

/* Waits for the CPU of the other thread. */
static void *behind(void *unused)
{
	uint64_t start;

	(void)unused;
	publish(&waiting);
	for (long i = 0; i < rounds; i++) {
		start = now_ns(); /* the other thread pauses, but not for as long */
		pause_for(3000);
		report("behind", &waiting, &other, start, now_ns());
	}
	return NULL;
}

/* Makes a thread wait: one that is woken, or one that gets no CPU. */
static void others(bool woken)
{
	struct sched_param first = {.sched_priority = 1};
	pthread_t waiter;
	cpu_set_t one;
	uint64_t start;

	fill(&waiting, 20);
	fill(&other, 30);
	publish(&other);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (pipe(ends) || (!woken && sched_setaffinity(0, sizeof(one), &one)))
		exit(1);
	pthread_create(&waiter, NULL, woken ? reader : behind, NULL);
	if (!woken && sched_setscheduler(0, SCHED_FIFO, &first))
		exit(1);
	for (long i = 0; i < rounds; i++) {
		if (woken) {
			pause_for(pause_us);
			if (write(ends[1], "", 1) != 1)
				exit(1);
			continue;
		}
		for (start = now_ns(); now_ns() - start < (uint64_t)pause_us * 1000;)
			;
		pause_for(2000);
	}
	pthread_join(waiter, NULL);
}

static void usage(void)
{
	fprintf(stderr, "usage: threadctx [LIBRARY] place | work ROUNDS US | hostile US | torn ROUNDS US | fork US | "
			"woken ROUNDS US | behind ROUNDS US | tokens SOCKET ROUNDS US | reads ROUNDS FILE\n");
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
	publish_names();
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
			publish_names(); /* a child does not inherit them */
			work((void *)50);
			return 0;
		}
		wait(NULL);
	} else if ((!strcmp(argv[1], "woken") || !strcmp(argv[1], "behind")) && argc == 4) {
		rounds = atol(argv[2]);
		pause_us = atol(argv[3]);
		others(!strcmp(argv[1], "woken"));
	} else if (!strcmp(argv[1], "tokens") && argc == 5) {
		rounds = atol(argv[3]);
		pause_us = atol(argv[4]);
		tokens(argv[2]);
	} else if (!strcmp(argv[1], "reads") && argc == 4) {
		rounds = atol(argv[2]);
		file = argv[3];
		pthread_create(&other, NULL, reads, (void *)100);
		reads((void *)1);
		pthread_join(other, NULL);
	} else {
		usage();
	}
	return 0;
}
