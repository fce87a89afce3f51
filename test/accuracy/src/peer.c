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

/* ------------------------------------------------------------ a queue that lets little through */

static void echo(void *arg, int ready)
{
	struct sockaddr_in a = address(THERE);
	socklen_t size = sizeof(a);
	uint64_t asked;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)arg;
	need(fd >= 0 && bind(fd, (struct sockaddr *)&a, size) == 0, "bind");
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	need(write(ready, "x", 1) == 1, "tell");
	for (;;) {
		need(recvfrom(fd, &asked, sizeof(asked), 0, (struct sockaddr *)&a, &size) == sizeof(asked), "receive");
		need(sendto(fd, &asked, sizeof(asked), 0, (struct sockaddr *)&a, size) == sizeof(asked), "answer");
	}
}

/* The device's queue sends 32 KB a second. What others have sent before has used that up. */
static void shaped(void)
{
	struct sockaddr_in there = address(THERE), nobody = address(THERE);
	static char much[1400];
	uint64_t answer;
	pid_t pid = wire(echo, NULL);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), its = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	nobody.sin_port = htons(9);
	shell("tc qdisc add dev scn0 root tbf rate 256kbit burst 1600 latency 1s");
	need(fd >= 0 && its >= 0 && connect(fd, (struct sockaddr *)&there, sizeof(there)) == 0, "connect");
	need(send(fd, &answer, sizeof(answer), 0) == sizeof(answer), "ask");
	need(recv(fd, &answer, sizeof(answer), 0) == sizeof(answer), "read an answer");
	for (int i = 0; i < 2; i++)
		need(sendto(its, much, sizeof(much), 0, (struct sockaddr *)&nobody, sizeof(nobody)) == sizeof(much),
		     "send");
	become_victim();
	need(send(fd, &truth.start, sizeof(truth.start), 0) == sizeof(truth.start), "ask");
	need(recv(fd, &answer, sizeof(answer), 0) == sizeof(answer), "read an answer");
	done();
	truth.culprit = pid;
	unwire(pid);
}

const struct scenario peer_scenarios[] = {
	{"local-server", local_server},
	{"network", network},
	{"softirq-storm", softirq_storm},
	{"shaped", shaped},
	{NULL, NULL},
};
