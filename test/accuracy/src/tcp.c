/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Victims whose wait ends by a timer of TCP, over the loopback device. A socket that has to lose
 * packets has a filter that takes none.
 */
#define _GNU_SOURCE
#include "scenario.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener, client, server;
static volatile uint64_t begin, resumed;

static struct sockaddr_in listen_on_loopback(int backlog)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);

	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	need(listener >= 0 && bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, backlog) == 0,
	     "listen");
	need(getsockname(listener, (struct sockaddr *)&at, &size) == 0, "getsockname");
	return at;
}

static int connect_to(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
	return fd;
}

static void make_connection(void)
{
	struct sockaddr_in at = listen_on_loopback(1);

	client = connect_to(&at);
	server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	need(server >= 0, "accept");
}

static void lose_packets(int fd, bool lose)
{
	struct sock_filter none = {.code = BPF_RET | BPF_K, .k = 0};
	struct sock_fprog program = {.len = 1, .filter = &none};
	int unused = 0;

	if (lose)
		need(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0, "attach a filter");
	else
		need(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused)) == 0, "detach a filter");
}

/* --------------------------------------------------------- SYN sent again */

static void accept_one(struct actor *actor)
{
	const uint64_t *after = actor->arg;

	sleep_until(begin + *after);
	need(accept4(listener, NULL, NULL, SOCK_CLOEXEC) >= 0, "accept");
}

/* The queue of connections that wait to be accepted is full until one is, which takes so long. */
static void syn_until(uint64_t accepted, uint64_t least, const char *spoilt)
{
	struct actor acceptor = {
		.comm = "scn-acceptor", .cpu = other, .fifo = MIDDLE, .act = accept_one, .arg = &accepted};
	struct sockaddr_in at = listen_on_loopback(0);

	connect_to(&at);
	begin = now();
	start(&acceptor);
	become_victim();
	connect_to(&at);
	done();
	join(&acceptor);
	if (truth.end - truth.start < least)
		truth.spoilt = spoilt;
}

/* The first SYN is ignored. */
static void syn_again(void)
{
	syn_until(100 * MSEC, 800 * MSEC, "the first SYN was taken");
}

/* The second one, too. */
static void syn_twice(void)
{
	syn_until(1500 * MSEC, 1600 * MSEC, "an earlier SYN was taken");
}

/* ------------------------------------- Nagle and delayed acknowledgements */

#define ROUNDS 20

static void serve_whole_requests(struct actor *actor)
{
	char part;
	int off = 0;

	(void)actor;
	for (int i = 0; i <= ROUNDS; i++) {
		for (int n = 0; n < (i < ROUNDS ? 1 : 2); n++) {
			need(read(server, &part, 1) == 1, "read a request");
			/* As long as nothing was lost, and both sides take turns. */
			need(setsockopt(server, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off)) == 0, "TCP_QUICKACK");
		}
		need(write(server, "x", 1) == 1, "answer");
	}
}

/* A request in two writes: the second waits for the acknowledgement of the first, which the server delays. */
static void delayed_ack(void)
{
	struct actor peer = {.comm = "scn-server", .cpu = other, .fifo = MIDDLE, .act = serve_whole_requests};
	char answer;

	make_connection();
	start(&peer);
	for (int i = 0; i < ROUNDS; i++)
		need(write(client, "x", 1) == 1 && read(client, &answer, 1) == 1, "ask");
	become_victim();
	need(write(client, "x", 1) == 1 && write(client, "x", 1) == 1, "ask in two writes");
	truth.start = now();
	need(read(client, &answer, 1) == 1, "read an answer");
	done();
	join(&peer);
	truth.culprit = peer.tid;
	if (truth.end - truth.start < 30 * MSEC)
		truth.spoilt = "the acknowledgement was not delayed";
}

/* Answers, and does not say that no more is to come. */
static void answer_corked(struct actor *actor)
{
	int on = 1;
	char request;

	(void)actor;
	need(read(server, &request, 1) == 1, "read a request");
	need(setsockopt(server, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) == 0, "TCP_CORK");
	need(write(server, "x", 1) == 1, "answer");
	need(read(server, &request, 1) == 0, "read to the end"); /* it keeps the socket */
}

/* The answer is held back by its sender. */
static void corked(void)
{
	struct actor peer = {.comm = "scn-server", .cpu = other, .fifo = MIDDLE, .act = answer_corked};
	char answer;

	make_connection();
	start(&peer);
	become_victim();
	need(write(client, "x", 1) == 1, "ask");
	truth.start = now();
	need(read(client, &answer, 1) == 1, "read an answer");
	done();
	need(shutdown(client, SHUT_WR) == 0, "shutdown");
	join(&peer);
	if (truth.end - truth.start < 30 * MSEC)
		truth.spoilt = "the answer was not held back";
}

/* --------------------------------------------------------- data sent again */

static void lose_for_a_while(struct actor *actor)
{
	char request;

	(void)actor;
	lose_packets(server, true);
	begin = now();
	sleep_until(begin + 60 * MSEC);
	lose_packets(server, false);
	need(read(server, &request, 1) == 1, "read a request");
	resumed = now();
	need(write(server, "x", 1) == 1, "answer");
}

/* The first packet of the request is lost. */
static void data_again(void)
{
	struct actor peer = {.comm = "scn-server", .cpu = other, .fifo = MIDDLE, .act = lose_for_a_while};
	char answer;

	make_connection();
	start(&peer);
	while (!begin)
		usleep(200);
	become_victim();
	need(write(client, "x", 1) == 1, "ask");
	need(read(client, &answer, 1) == 1, "read an answer");
	done();
	join(&peer);
	if (truth.end - truth.start < 100 * MSEC)
		truth.spoilt = "nothing was lost";
}

static void heal(struct actor *actor)
{
	(void)actor;
	while (!begin)
		usleep(200);
	sleep_until(begin + 60 * MSEC);
	lose_packets(server, false);
}

/* It closes a connection, and waits until all has arrived; a packet is lost. */
static void linger(void)
{
	struct actor healer = {.comm = "scn-healer", .cpu = other, .fifo = MIDDLE, .act = heal};
	struct linger wait = {.l_onoff = 1, .l_linger = 5};

	make_connection();
	need(setsockopt(client, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)) == 0, "SO_LINGER");
	start(&healer);
	lose_packets(server, true);
	become_victim();
	begin = truth.start;
	need(write(client, "x", 1) == 1, "write");
	truth.start = now();
	close(client);
	done();
	join(&healer);
	if (truth.end - truth.start < 100 * MSEC)
		truth.spoilt = "nothing was lost";
}

/* ------------------------------------------------------------- zero window */

#define MUCH (4 << 20)

static void read_all(int fd)
{
	static char buf[1 << 16];

	for (size_t left = MUCH; left > 0;) {
		ssize_t n = read(fd, buf, left < sizeof(buf) ? left : sizeof(buf));

		need(n > 0, "read");
		left -= (size_t)n;
	}
}

static void read_late(struct actor *actor)
{
	(void)actor;
	while (!begin)
		usleep(200);
	sleep_until(begin + LONG);
	resumed = now();
	read_all(server);
}

/* As much as goes without waiting. */
static size_t fill(int fd)
{
	static char buf[1 << 16];
	size_t all = 0;
	ssize_t n;

	do {
		while ((n = send(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
			all += (size_t)n;
		need(errno == EAGAIN, "fill a socket");
		usleep(100000); /* longer than an acknowledgement is delayed */
		n = send(fd, buf, 1, MSG_DONTWAIT);
		all += n > 0 ? 1 : 0;
	} while (n > 0);
	return all;
}

static void send_rest(size_t sent)
{
	static char buf[1 << 16];

	become_victim();
	begin = truth.start;
	need(send(client, buf, 1, 0) == 1, "send");
	done();
	for (sent++; sent < MUCH;) {
		ssize_t n = send(client, buf, MUCH - sent < sizeof(buf) ? MUCH - sent : sizeof(buf), 0);

		need(n > 0, "send");
		sent += (size_t)n;
	}
}

static void small_buffers(void)
{
	int size = 1 << 16;

	make_connection();
	need(setsockopt(client, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0, "SO_SNDBUF");
	need(setsockopt(server, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0, "SO_RCVBUF");
}

/* The reader does not read: there is no room in its socket. */
static void slow_reader(void)
{
	struct actor reader = {.comm = "scn-reader", .cpu = other, .fifo = MIDDLE, .act = read_late};

	small_buffers();
	size_t sent = fill(client);
	start(&reader);
	send_rest(sent);
	join(&reader);
	truth.culprit = reader.tid;
	truth.part = resumed - truth.start;
}

static void read_unheard(struct actor *actor)
{
	(void)actor;
	while (!begin)
		usleep(200);
	lose_packets(client, true);
	read_all(server);
}

static void hear_again(struct actor *actor)
{
	(void)actor;
	while (!begin)
		usleep(200);
	sleep_until(begin + 20 * MSEC);
	lose_packets(client, false);
}

/* The reader has read, but the packet that says so was lost. */
static void window_probe(void)
{
	struct actor reader = {.comm = "scn-reader", .cpu = other, .fifo = MIDDLE, .act = read_unheard};
	struct actor healer = {.comm = "scn-healer", .cpu = other, .fifo = MIDDLE, .act = hear_again};

	small_buffers();
	size_t sent = fill(client);
	start(&reader);
	start(&healer);
	send_rest(sent);
	join(&healer);
	join(&reader);
	if (truth.end - truth.start < 40 * MSEC)
		truth.spoilt = "the packet was not lost";
}

const struct scenario tcp_scenarios[] = {
	{"syn-again", syn_again},     {"syn-twice", syn_twice},	      {"delayed-ack", delayed_ack},
	{"corked", corked},	      {"data-again", data_again},     {"linger", linger},
	{"slow-reader", slow_reader}, {"window-probe", window_probe}, {NULL, NULL},
};
