/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that goes through several hands. pipe: a timer wakes a thread, which
 * wakes the next one through a pipe, and so on; the second one takes its time.
 * herd: a timer wakes a thread, which wakes all others at once. udp: a thread
 * sends datagrams to another one over loopback.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_LINKS 16
#define GAP_NS 3000000ull /* between two rounds */

static int links, rounds;
static uint64_t hold_ns;
static int pipes[MAX_LINKS][2]; /* [i]: from thread i - 1 to thread i */
static struct events events;

/* -------------------------------------------------------------------- pipe */

/* What one hands to the next. */
struct round {
	uint64_t due;
	uint64_t spoilt; /* someone did not sleep right before: his chain may be an older one */
};

noinline long inject_chain_read(int fd, struct round *round)
{
	return raw(SYS_read, fd, (long)round, sizeof(*round), 0, 0, 0);
}

static void hand_on(int i, const struct round *round)
{
	need(write(pipes[i][1], round, sizeof(*round)) == sizeof(*round), "wake the next one");
}

static void *link_main(void *arg)
{
	int i = (int)(long)arg;
	char comm[16];
	struct round round;

	fifo_thread(1);
	snprintf(comm, sizeof(comm), "inj-chain-%d", i);
	name_thread(comm);
	for (struct switches before = switches(); inject_chain_read(pipes[i][0], &round) == sizeof(round);) {
		uint64_t end = now();
		struct switches after = switches();

		round.spoilt |= after.slept != before.slept + 1;
		before = after;
		if (i == 1)
			spin_until(end + hold_ns);
		if (i + 1 < links) {
			hand_on(i + 1, &round);
			continue;
		}
		const char *kind = round.spoilt ? "spoilt" : "over";

		/* It sleeps between two rounds: no delay is excused there. */
		events_add(&events, "chain", kind, "inject_chain_read", round.due, end)->since_ns = 0;
	}
	name_thread("inj-idle");
	if (i + 1 < links)
		close(pipes[i + 1][1]);
	return NULL;
}

static int run_pipe(void)
{
	pthread_t threads[MAX_LINKS];

	events_init(&events, (size_t)rounds);
	for (int i = 1; i < links; i++) {
		need(pipe2(pipes[i], O_CLOEXEC) == 0, "make a pipe");
		need(pthread_create(&threads[i], NULL, link_main, (void *)(long)i) == 0, "make a thread");
	}
	fifo_thread(1);
	name_thread("inj-chain-0");
	sleep_until(now() + 10 * GAP_NS);
	for (int n = 0; n < rounds; n++) {
		struct switches before = switches();
		struct round round = {.due = now() + GAP_NS};

		sleep_until(round.due);
		round.spoilt = switches().slept != before.slept + 1;
		hand_on(1, &round);
		sleep_until(now() + hold_ns + GAP_NS);
	}
	name_thread("inj-idle");
	close(pipes[1][1]);
	for (int i = 1; i < links; i++)
		pthread_join(threads[i], NULL);
	events_print(&events);
	return 0;
}

/* -------------------------------------------------------------------- herd */

static uint32_t word, ready_count, end;

static void *herd_main(void *unused)
{
	uint32_t seen = 0;

	name_thread("inj-herd");
	__atomic_add_fetch(&ready_count, 1, __ATOMIC_ACQ_REL);
	for (;;) {
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
		if (__atomic_load_n(&end, __ATOMIC_ACQUIRE))
			return unused;
		seen = __atomic_load_n(&word, __ATOMIC_ACQUIRE);
	}
}

static int run_herd(int count)
{
	pthread_t *threads = calloc((size_t)count, sizeof(*threads));

	need(threads, "memory for threads");
	events_init(&events, (size_t)rounds);
	for (int i = 0; i < count; i++)
		need(pthread_create(&threads[i], NULL, herd_main, NULL) == 0, "make a thread");
	while (__atomic_load_n(&ready_count, __ATOMIC_ACQUIRE) < (uint32_t)count)
		sleep_until(now() + GAP_NS);
	name_thread("inj-herder");
	for (int n = 0; n < rounds; n++) {
		uint64_t due = now() + 10 * GAP_NS;

		sleep_until(due);
		__atomic_add_fetch(&word, 1, __ATOMIC_ACQ_REL);
		long woken = syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
		events_add(&events, "chain", "over", "run_herd", due,
			   due + (uint64_t)woken); /* the length is how many */
	}
	sleep_until(now() + 10 * GAP_NS);
	__atomic_store_n(&end, 1, __ATOMIC_RELEASE);
	__atomic_add_fetch(&word, 1, __ATOMIC_ACQ_REL);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	events_print(&events);
	return 0;
}

/* --------------------------------------------------------------------- udp */

static int receiver;

noinline long inject_chain_receive(uint64_t *sent)
{
	return raw(SYS_recvfrom, receiver, (long)sent, sizeof(*sent), 0, 0, 0);
}

static void *udp_main(void *unused)
{
	uint64_t sent;

	fifo_thread(1);
	name_thread("inj-chain-udp");
	for (struct switches before = switches(); inject_chain_receive(&sent) == sizeof(sent) && sent;) {
		uint64_t end = now();
		struct switches after = switches();

		events_add(&events, "chain", after.slept == before.slept + 1 ? "over" : "spoilt",
			   "inject_chain_receive", sent, end);
		before = after;
	}
	name_thread("inj-idle");
	return unused;
}

static int run_udp(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(to);
	pthread_t thread;
	uint64_t sent;
	int sender;

	events_init(&events, (size_t)rounds);
	receiver = socket(AF_INET, SOCK_DGRAM, 0);
	sender = socket(AF_INET, SOCK_DGRAM, 0);
	need(receiver >= 0 && sender >= 0, "make a socket");
	need(bind(receiver, (struct sockaddr *)&to, sizeof(to)) == 0, "bind to loopback");
	need(getsockname(receiver, (struct sockaddr *)&to, &size) == 0, "find the port");
	need(connect(sender, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
	need(pthread_create(&thread, NULL, udp_main, NULL) == 0, "make a thread");
	name_thread("inj-chain-send");
	for (int n = 0; n < rounds; n++) {
		sleep_until(now() + GAP_NS);
		sent = now();
		need(send(sender, &sent, sizeof(sent), 0) == sizeof(sent), "send");
	}
	sleep_until(now() + GAP_NS);
	sent = 0;
	need(send(sender, &sent, sizeof(sent), 0) == sizeof(sent), "send");
	pthread_join(thread, NULL);
	events_print(&events);
	return 0;
}

int cmd_chain(int argc, char **argv)
{
	if (argc != 5)
		die("chain wants pipe|herd|udp THREADS rounds hold_us");
	links = (int)number(argv[2], 2, 10000);
	rounds = (int)number(argv[3], 1, 1000000);
	hold_ns = 1000 * (uint64_t)number(argv[4], 0, 1000000);
	if (strcmp(argv[1], "pipe") == 0 && links <= MAX_LINKS)
		return run_pipe();
	if (strcmp(argv[1], "herd") == 0)
		return run_herd(links);
	if (strcmp(argv[1], "udp") == 0)
		return run_udp();
	die("chain wants pipe (2 to 16 threads), herd or udp");
}
