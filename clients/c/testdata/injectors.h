/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of work of known amounts, for the client: what a token is given of each is what its account must have. */
#ifndef INJECTORS_H
#define INJECTORS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	PAGE = 4096, /* of direct reads; pages of memory may be larger */
	COLD_PAGES = 1024,
	MESSAGE = 1000,
	FAULTS = 4,
	PAUSE_NS = 5000000,
};

static long page_size;
static int direct_file, cold_file, warm_file, refresh_file;
static uint32_t next_cold;
static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER; /* held for ever */

/* What each thread has for itself. */
static __thread int ends_of_tcp[2];
static __thread char *fresh, *fresh_end;
static __thread char *aligned_page;

#define MUST(what)                     \
	do {                           \
		if (!(what)) {         \
			perror(#what); \
			abort();       \
		}                      \
	} while (0)

static void inject_sleep(void)
{
	struct timespec t = {0, PAUSE_NS};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static void inject_lock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += PAUSE_NS;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	pthread_mutex_clocklock(&never, CLOCK_MONOTONIC, &t);
}

static void inject_direct(void)
{
	MUST(pread(direct_file, aligned_page, PAGE, 0) == PAGE);
}

/* A page that nobody has read before. */
static void inject_cold(void)
{
	uint32_t page = __atomic_fetch_add(&next_cold, 1, __ATOMIC_RELAXED);

	MUST(page < COLD_PAGES && pread(cold_file, aligned_page, 1, (off_t)page * page_size) == 1);
}

static void inject_warm(void)
{
	MUST(pread(warm_file, aligned_page, 1, 0) == 1);
}

static void inject_tcp(void)
{
	char data[MESSAGE] = {0};

	MUST(send(ends_of_tcp[0], data, MESSAGE, 0) == MESSAGE);
	MUST(recv(ends_of_tcp[1], data, MESSAGE, MSG_WAITALL) == MESSAGE);
}

/* Each CPU has a work item to do. */
static void inject_work(void)
{
	MUST(pwrite(refresh_file, "1", 1, 0) == 1);
}

static void inject_faults(void)
{
	for (int i = 0; i < FAULTS; i++, fresh += page_size) {
		MUST(fresh < fresh_end);
		*(volatile char *)fresh = 1;
	}
}

struct injector {
	const char *name;
	void (*piece)(void); /* NULL: spins */
	int pieces;	     /* for each token */
	bool waits;	     /* it is measured how long */
};

static const struct injector injectors[] = {
	{"spin", NULL, 0, false},
	{"sleep", inject_sleep, 4, true},
	{"lock", inject_lock, 4, true},
	{"direct", inject_direct, 64, false},
	{"cold", inject_cold, 64, false},
	{"warm", inject_warm, 64, false},
	{"tcp", inject_tcp, 64, false},
	{"work", inject_work, 4, false},
	{"faults", inject_faults, 64, false},
};

enum { INJECTORS = sizeof(injectors) / sizeof(*injectors) };

static int open_file(const char *dir, const char *name, int flags)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags | O_CLOEXEC);
	MUST(fd >= 0);
	return fd;
}

/* Files of the directory: direct and warm of a page, cold of COLD_PAGES, which are not in memory. */
static void injectors_open(const char *dir)
{
	char c;

	page_size = sysconf(_SC_PAGESIZE);
	direct_file = open_file(dir, "direct", O_RDONLY | O_DIRECT);
	cold_file = open_file(dir, "cold", O_RDONLY);
	MUST(!posix_fadvise(cold_file, 0, 0, POSIX_FADV_RANDOM)); /* nothing is read ahead */
	warm_file = open_file(dir, "warm", O_RDONLY);
	MUST(pread(warm_file, &c, 1, 0) == 1);
	refresh_file = open_file("/proc/sys/vm", "stat_refresh", O_WRONLY);
	pthread_mutex_lock(&never);
}

/* For each thread, before it carries a token. */
static void injectors_join(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	size_t memory = (size_t)page_size * FAULTS * 64 * 16;
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	MUST(!bind(listener, (void *)&at, sizeof(at)) && !listen(listener, 1) &&
	     !getsockname(listener, (void *)&at, &size));
	ends_of_tcp[0] = socket(AF_INET, SOCK_STREAM, 0);
	MUST(!connect(ends_of_tcp[0], (void *)&at, size));
	ends_of_tcp[1] = accept(listener, NULL, NULL);
	MUST(ends_of_tcp[1] >= 0);
	setsockopt(ends_of_tcp[0], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	close(listener);
	fresh = mmap(NULL, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(fresh != MAP_FAILED);
	fresh_end = fresh + memory;
	madvise(fresh, memory, MADV_NOHUGEPAGE);
	MUST(!posix_memalign((void **)&aligned_page, (size_t)page_size, (size_t)page_size));
	aligned_page[0] = 1;
	/* What the first time takes is nobody's. */
	inject_tcp();
	inject_faults();
	inject_direct();
	inject_warm();
}

#endif
