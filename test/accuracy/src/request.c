/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Victims that work for a request, and are slow because of another one, or of their own. They say
 * which by tokens or, as OpenTelemetry's SDKs do, by a trace that they publish.
 */
#define _GNU_SOURCE
#include "tailcam.h" /* first: it has attributes of names that inject.h defines */

#include "scenario.h"
#include "threadctx.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct tailcam *h;
static uint64_t begin, checkout, report;

/* Two requests; the second is to blame. */
static void open_requests(void)
{
	char error[256];

	h = tailcam_open(getenv("SCENARIO_SOCKET"), NULL, error, sizeof(error));
	need(h != NULL, error);
	checkout = tailcam_token(h, "checkout");
	report = tailcam_token(h, "report");
	need(checkout && report, "make tokens");
	truth.request = report;
	begin = now() + 20 * MSEC;
}

static void work_for(uint64_t token)
{
	need(tailcam_switch(h, token) == 0, "switch to a token");
}

/* The victim works for its request, which is slow from here on. */
static void victim_begins(struct actor *actor)
{
	truth.victim = actor->tid;
	work_for(checkout);
	sleep_until(begin + MSEC);
	truth.start = now();
}

/* ------------------------------------------------------ a lock of its own request */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t released;

static void hold_lock(void)
{
	pthread_mutex_lock(&lock);
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	pthread_mutex_unlock(&lock);
}

static void take_lock(void)
{
	pthread_mutex_lock(&lock);
	truth.end = now();
	pthread_mutex_unlock(&lock);
}

static void hold(struct actor *actor)
{
	work_for(*(uint64_t *)actor->arg);
	hold_lock();
}

static void take(struct actor *actor)
{
	victim_begins(actor);
	take_lock();
}

static void locked_by(void (*holds)(struct actor *), void *request, void (*takes)(struct actor *))
{
	struct actor holder = {.comm = "scn-holder", .cpu = other, .fifo = MIDDLE, .act = holds, .arg = request};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = takes};

	start(&holder);
	start(&victim);
	join(&holder);
	join(&victim);
	truth.culprit = holder.tid;
	truth.part = released - truth.start;
}

/* Another thread of the victim's own request has the lock. */
static void own_lock(void)
{
	open_requests();
	truth.request = checkout;
	locked_by(hold, &checkout, take);
}

/* And one of another request. */
static void other_lock(void)
{
	open_requests();
	locked_by(hold, &report, take);
}

/* ------------------------------------------- a lock, and traces instead of tokens */

static struct record traces[3];

static void publish(struct record *r, uint8_t id)
{
	memset(r->trace_id, id, sizeof(r->trace_id));
	memset(r->span_id, id, sizeof(r->span_id));
	r->valid = 1;
	*(struct record *volatile *)variable() = r;
}

static void hold_traced(struct actor *actor)
{
	publish(actor->arg, 0xb2);
	hold_lock();
	publish(actor->arg, 0xc3); /* and works on something else */
}

static void traced_victim_begins(struct actor *actor)
{
	publish(&traces[0], 0xa1);
	truth.victim = actor->tid;
	sleep_until(begin + MSEC);
	truth.start = now();
}

static void take_traced(struct actor *actor)
{
	traced_victim_begins(actor);
	take_lock();
}

static void trace_lock(void)
{
	truth.trace = "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2";
	begin = now() + 20 * MSEC;
	locked_by(hold_traced, &traces[1], take_traced);
}

/* --------------------------------------------------------- traces further down the path */

static int from_middle[2], from_last[2];

static void await_byte(int fd)
{
	char c;

	need(read(fd, &c, 1) == 1, "read from a pipe");
}

static void send_byte(int fd)
{
	need(write(fd, "", 1) == 1, "write to a pipe");
}

static void work_traced(struct actor *actor)
{
	publish(actor->arg, 0xc3);
	exactly(begin);
	spin_until(begin + LONG);
	send_byte(from_last[1]);
	publish(actor->arg, 0xd4);
}

static void ask_traced(struct actor *actor)
{
	publish(actor->arg, 0xb2);
	await_byte(from_last[0]);
	send_byte(from_middle[1]);
	publish(actor->arg, 0xd4);
}

static void wait_traced(struct actor *actor)
{
	traced_victim_begins(actor);
	await_byte(from_middle[0]);
	truth.end = now();
}

/* The victim waits for one that waits for another one. Each works for a request of its own. */
static void trace_chain(void)
{
	struct actor last = {.comm = "scn-last", .cpu = other, .fifo = MIDDLE, .act = work_traced, .arg = &traces[2]};
	struct actor middle = {.comm = "scn-middle", .cpu = cpu, .fifo = MIDDLE, .act = ask_traced, .arg = &traces[1]};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wait_traced};

	need(pipe(from_middle) == 0 && pipe(from_last) == 0, "pipes");
	begin = now() + 20 * MSEC;
	start(&last);
	start(&middle);
	start(&victim);
	join(&last);
	join(&middle);
	join(&victim);
	truth.culprit = middle.tid;
	truth.root = last.tid;
	truth.trace = "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2";
	truth.behind = "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3";
}

/* ------------------------------------------------------- a work queue of the kernel */

static void queue_work(void)
{
	put("/proc/sys/vm", "stat_refresh", "1"); /* queues work on each CPU, and waits for it */
}

static void queue_first(struct actor *actor)
{
	(void)actor;
	work_for(report);
	exactly(begin);
	queue_work();
}

static void queue_second(struct actor *actor)
{
	victim_begins(actor);
	queue_work();
	truth.end = now();
}

/* The harness makes the first work item long: the victim's waits for the same worker. */
static void work_queue(void)
{
	struct actor reporter = {.comm = "scn-reporter", .cpu = other, .fifo = MIDDLE, .act = queue_first};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = queue_second};

	open_requests();
	start(&reporter);
	start(&victim);
	join(&reporter);
	join(&victim);
}

/* ------------------------------------------------------------- a pool of one thread */

static sem_t queued, ended;

/* The victim is whoever carries its token last. */
static void serve(struct actor *actor)
{
	truth.victim = truth.culprit = actor->tid;
	work_for(report);
	exactly(begin);
	spin_until(begin + LONG);
	released = now();
	while (sem_wait(&queued) != 0)
		;
	work_for(checkout);
	spin_until(now() + 2 * MSEC);
	work_for(0);
	truth.end = now();
	tailcam_end_token(h, checkout, NULL);
	sem_post(&ended);
}

static void ask(struct actor *actor)
{
	(void)actor;
	exactly(begin + MSEC);
	truth.start = now();
	checkout = tailcam_token(h, "checkout");
	work_for(checkout);
	spin_until(now() + MSEC);
	work_for(0);
	sem_post(&queued); /* handed over */
	while (sem_wait(&ended) != 0)
		;
}

static void pool(void)
{
	struct actor worker = {.comm = "scn-worker", .cpu = other, .fifo = MIDDLE, .act = serve};
	struct actor client = {.comm = "scn-client", .cpu = cpu, .fifo = MIDDLE, .act = ask};

	open_requests();
	tailcam_end_token(h, checkout, NULL);
	need(sem_init(&queued, 0, 0) == 0 && sem_init(&ended, 0, 0) == 0, "make semaphores");
	start(&worker);
	start(&client);
	join(&client);
	join(&worker);
	truth.part = released - truth.start - MSEC;
}

/* ------------------------------------------------------- pages that another evicts */

#define PAGE 4096
#define MIB (1 << 20)

static int mine, large;

/* Reads much more than the cgroup's memory holds: holes of a file, which are on no disk. */
static void read_much(struct actor *actor)
{
	static char buf[MIB];

	(void)actor;
	work_for(report);
	for (int i = 0; i < 64; i++)
		need(pread(large, buf, sizeof(buf), (off_t)i * MIB) == sizeof(buf), "read much");
	work_for(0);
}

static void read_again(struct actor *actor)
{
	char buf[PAGE];

	begin = now() + 5 * MSEC;
	victim_begins(actor);
	need(pread(mine, buf, sizeof(buf), 0) == sizeof(buf), "read again");
	truth.end = now();
}

/* The victim has its page in memory, until another request needs that for its own. */
static void evicted(void)
{
	struct actor reporter = {.comm = "scn-reporter", .cpu = other, .act = read_much};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = read_again};
	const char *group = getenv("SCENARIO_CGROUP");
	unsigned char there = 1;
	char pid[16], buf[PAGE];

	need(group != NULL, "SCENARIO_CGROUP");
	open_requests();
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(group, "cgroup.procs", pid);
	mine = file_in("mine", PAGE);
	large = file_in("large", PAGE);
	need(fsync(mine) == 0 && posix_fadvise(mine, 0, 0, POSIX_FADV_DONTNEED) == 0, "forget the page");
	need(ftruncate(large, 64 * MIB) == 0, "make a large file");
	need(pread(mine, buf, PAGE, 0) == PAGE, "read a page");
	start(&reporter);
	join(&reporter);
	void *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mine, 0);
	need(at != MAP_FAILED && mincore(at, PAGE, &there) == 0, "ask whether the page is in memory");
	munmap(at, PAGE);
	need(syncfs(mine) == 0, "leave nothing to be written");
	if (there & 1) {
		truth.spoilt = "the page stayed in memory";
		return;
	}
	start(&victim);
	join(&victim);
	truth.root = reporter.tid;
}

const struct scenario request_scenarios[] = {
	{"req-own-lock", own_lock}, {"req-lock", other_lock},	{"req-work", work_queue},     {"req-evicted", evicted},
	{"req-pool", pool},	    {"trace-lock", trace_lock}, {"trace-chain", trace_chain}, {NULL, NULL},
};
