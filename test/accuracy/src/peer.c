/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that ask somebody over a socket, and get a late answer. */
#define _GNU_SOURCE
#include "scenario.h"

#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int pair[2];
static uint64_t begin, answered;

/* ----------------------------------------------------------- a busy server */

static void serve_slowly(struct actor *actor)
{
	uint64_t asked;

	(void)actor;
	need(read(pair[1], &asked, sizeof(asked)) == sizeof(asked), "read a request");
	spin_until(asked + LONG);
	answered = now();
	need(write(pair[1], &asked, sizeof(asked)) == sizeof(asked), "answer");
}

static void ask(struct actor *actor)
{
	uint64_t answer;

	truth.victim = actor->tid;
	sleep_until(begin);
	truth.start = now();
	need(write(pair[0], &truth.start, sizeof(truth.start)) == sizeof(truth.start), "ask");
	need(read(pair[0], &answer, sizeof(answer)) == sizeof(answer), "read an answer");
	truth.end = now();
}

static void local_server(void)
{
	struct actor server = {.comm = "scn-server", .cpu = other, .fifo = MIDDLE, .act = serve_slowly};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = ask};

	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "make a pair of sockets");
	begin = now() + 10 * MSEC;
	start(&server);
	start(&victim);
	join(&victim);
	join(&server);
	truth.culprit = server.tid;
	truth.part = answered - truth.start;
}

/* ------------------------------------------------------ a peer over a wire */

#define HERE "10.77.0.1"
#define THERE "10.77.0.2"
#define PORT 7777

static void shell(const char *command)
{
	if (system(command) != 0) {
		fprintf(stderr, "scenario: this failed: %s\n", command);
		exit(1);
	}
}

static struct sockaddr_in address(const char *at)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	inet_pton(AF_INET, at, &a.sin_addr);
	return a;
}

/* Makes a child with a network of its own, and a wire to there. The child calls body, and tells when it is ready. */
static pid_t wire(void (*body)(void *arg, int ready), void *arg)
{
	char command[256], byte;
	int ready[2];

	need(pipe(ready) == 0, "make a pipe");
	need(unshare(CLONE_NEWNET) == 0, "a network of its own");
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name_thread("scn-peer");
		pin_thread(other);
		need(unshare(CLONE_NEWNET) == 0, "a network of its own");
		need(write(ready[1], "x", 1) == 1, "tell");
		/* The wire comes from the other side. */
		shell("for i in $(seq 100); do ip link show scn1 >/dev/null 2>&1 && break; sleep 0.02; done;"
		      "ip addr add " THERE "/24 dev scn1 && ip link set scn1 up");
		body(arg, ready[1]);
		for (;;)
			pause(); /* the wire would go with it */
	}
	close(ready[1]); /* so that the end of the peer is seen */
	need(read(ready[0], &byte, 1) == 1, "wait for the peer");
	snprintf(command, sizeof(command),
		 "ip link add scn0 type veth peer name scn1 netns %d && ip addr add " HERE
		 "/24 dev scn0 && ip link set scn0 up",
		 pid);
	shell(command);
	need(read(ready[0], &byte, 1) == 1, "wait for the peer");
	return pid;
}

static void unwire(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The peer answers the first request at once, and the second one late. */
static void peer(void *arg, int ready)
{
	struct sockaddr_in a = address(THERE);
	socklen_t size = sizeof(a);
	uint64_t asked, *at = arg;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	need(fd >= 0 && bind(fd, (struct sockaddr *)&a, size) == 0, "bind");
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	need(write(ready, "x", 1) == 1, "tell");
	for (int round = 0; round < 2; round++) {
		need(recvfrom(fd, &asked, sizeof(asked), 0, (struct sockaddr *)&a, &size) == sizeof(asked), "receive");
		if (round)
			sleep_until(asked + LONG);
		*at = now();
		need(sendto(fd, &asked, sizeof(asked), 0, (struct sockaddr *)&a, size) == sizeof(asked), "answer");
	}
}

static void network(void)
{
	struct sockaddr_in there = address(THERE);
	uint64_t *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t answer;

	need(at != MAP_FAILED, "shared memory");
	pid_t pid = wire(peer, at);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	need(fd >= 0 && connect(fd, (struct sockaddr *)&there, sizeof(there)) == 0, "connect");
	pin_thread(cpu);
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	for (int round = 0; round < 2; round++) {
		if (round) {
			name_thread(victim_comm);
			truth.victim = gettid();
		}
		truth.start = now();
		need(send(fd, &truth.start, sizeof(truth.start), 0) == sizeof(truth.start), "ask");
		need(recv(fd, &answer, sizeof(answer), 0) == sizeof(answer), "read an answer");
		truth.end = now();
	}
	name_thread("scn-idle");
	truth.part = *at - truth.start;
	truth.culprit = pid;
	unwire(pid);
}

/* ----------------------------------------------------------- a storm of packets */

#define NOWHERE "10.78.0.0/16"
#define PACKETS 400

/* Forwards, also what comes back to it, and does not say that there is a better way. */
#define ROUTER                                                           \
	"cd /proc/sys/net/ipv4; echo 1 >ip_forward; for i in conf/*; do" \
	" echo 0 >$i/rp_filter; echo 1 >$i/accept_local; echo 0 >$i/send_redirects; done; "

/* Both ends believe that the other one knows the way. */
static void forward(void *arg, int ready)
{
	(void)arg;
	shell(ROUTER "ip route add " NOWHERE " via " HERE);
	need(write(ready, "x", 1) == 1, "tell");
}

/* How much CPU time the thread has had that does softirqs when there are too many. */
static uint64_t softirq_thread_ns(void)
{
	static pid_t pid;
	struct timespec ts;
	clockid_t clock;

	if (!pid) {
		char command[128], name[16];

		snprintf(command, sizeof(command), "grep -lx ksoftirqd/%d /proc/[0-9]*/comm 2>/dev/null", cpu);
		FILE *f = popen(command, "re");
		need(f && fscanf(f, "/proc/%d/%15s", &pid, name) == 2, "find the thread of softirqs");
		pclose(f);
	}
	need(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &ts) == 0,
	     "the clock of the thread of softirqs");
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

/* CPU time of the sender, for the softirqs that its sending raised. */
static uint64_t at_once;

static uint64_t own_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

static sem_t ready;

static void want_cpu(struct actor *actor)
{
	(void)actor;
	while (own_cpu_ns() < LONG / 4) /* so that it has had its share */
		;
	truth.part = softirq_thread_ns();
	begin = now() + MSEC;
	sem_post(&ready);
	look_for_gap(LONG / 4, begin + 4 * LONG);
	truth.part = softirq_thread_ns() - truth.part;
}

/* Sends packets that may take so many steps. Returns the CPU time that it took. */
static uint64_t send_packets(int steps, int count)
{
	struct sockaddr_in to = address("10.78.0.1");
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	need(fd >= 0 && setsockopt(fd, IPPROTO_IP, IP_TTL, &steps, sizeof(steps)) == 0, "make a socket");
	uint64_t before = own_cpu_ns();
	for (int i = 0; i < count; i++)
		sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)); /* the queue may be full */
	uint64_t took = own_cpu_ns() - before;
	close(fd);
	return took;
}

static void storm(struct actor *actor)
{
	(void)actor;
	uint64_t sending = send_packets(1, PACKETS);
	sem_wait(&ready);
	sleep_until(begin);
	uint64_t all = send_packets(255, PACKETS);
	at_once = all > sending ? all - sending : 0;
}

/*
 * Packets go round between two hosts until their time to live is over, all on
 * one CPU: softirqs without end, which the victim's CPU does first.
 */
static void softirq_storm(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .nice = 10, .act = want_cpu};
	struct actor sender = {.comm = "scn-sender", .cpu = cpu, .fifo = LOW, .act = storm};
	pid_t pid = wire(forward, NULL);

	shell(ROUTER "ip route add " NOWHERE " via " THERE);
	need(sem_init(&ready, 0, 0) == 0, "make a semaphore");
	start(&sender);
	start(&victim);
	join(&sender);
	join(&victim);
	unwire(pid);
	truth.part += at_once;
	if (!truth.spoilt && truth.part < (truth.end - truth.start) / 100 * 60)
		truth.spoilt = "others had the CPU as well";
}

/* -------------------------------------------------------------- PostgreSQL */

/* Sends one message of PostgreSQL's protocol; the first one of all has no type. */
static void pg_send(int fd, char type, const void *body, size_t size)
{
	char buf[512];
	size_t at = 0;
	uint32_t length = htonl((uint32_t)size + 4);

	if (type)
		buf[at++] = type;
	memcpy(buf + at, &length, 4);
	memcpy(buf + at + 4, body, size);
	at += 4 + size;
	need(write(fd, buf, at) == (ssize_t)at, "send to PostgreSQL");
}

static void pg_read(int fd, void *buf, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = read(fd, (char *)buf + at, size - at);

		need(n > 0, "read from PostgreSQL");
		at += (size_t)n;
	}
}

/* Reads messages until the server is ready for more; returns its process, if it said so. */
static pid_t pg_until_ready(int fd)
{
	char head[5], body[4096];
	uint32_t length, pid = 0;

	do {
		pg_read(fd, head, sizeof(head));
		memcpy(&length, head + 1, 4);
		length = ntohl(length) - 4;
		if (length > sizeof(body))
			die("a long message of PostgreSQL");
		pg_read(fd, body, length);
		if (head[0] == 'E') {
			fprintf(stderr, "PostgreSQL: %.*s\n", (int)length, body);
			die("PostgreSQL refuses");
		}
		if (head[0] == 'K')
			memcpy(&pid, body, 4);
	} while (head[0] != 'Z');
	return (pid_t)ntohl(pid);
}

static void pg_query(int fd, const char *sql)
{
	pg_send(fd, 'Q', sql, strlen(sql) + 1);
	pg_until_ready(fd);
}

/* A commit waits for a server that waits for its log's disk. */
static void postgres(void)
{
	static const char hello[] = "\0\3\0\0user\0postgres\0database\0postgres\0";
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!argument || strlen(argument) >= sizeof(at.sun_path))
		die("postgres wants the path of a socket");
	strcpy(at.sun_path, argument);
	need(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect to PostgreSQL");
	pg_send(fd, 0, hello, sizeof(hello));
	truth.culprit = pg_until_ready(fd);
	pg_query(fd, "create table if not exists scenario (n int)");
	pg_query(fd, "insert into scenario values (1)");
	pin_thread(cpu);
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	name_thread(victim_comm);
	truth.victim = gettid();
	truth.start = now();
	pg_query(fd, "insert into scenario values (2)");
	truth.end = now();
	name_thread("scn-idle");
	close(fd);
}

const struct scenario peer_scenarios[] = {
	{"local-server", local_server}, {"network", network}, {"softirq-storm", softirq_storm},
	{"postgres", postgres},		{NULL, NULL},
};
