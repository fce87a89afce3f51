/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies that have a name: a herd, retries, neighbours, CPUs that wake up late. */
#define _GNU_SOURCE
#include "scenario.h"

#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t begin, until;

/* -------------------------------------------------------------------- herds */

#define HERD 10

static uint32_t gate;
static struct stretches noted[HERD];

static void pass_gate(void)
{
	while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &gate, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void run_with_herd(struct actor *actor)
{
	pass_gate();
	spin_noting(actor->arg, now() + 4 * MSEC);
}

static void come_after_herd(struct actor *actor)
{
	truth.victim = actor->tid;
	pass_gate();
	truth.end = now();
}

static void open_gate(struct actor *actor)
{
	(void)actor;
	exactly(begin);
	truth.start = now();
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &gate, FUTEX_WAKE_PRIVATE, HERD + 1, NULL, NULL, 0);
}

/* One wakes all who wait, and there is a CPU for one of them. The last in the queue is the victim. */
static void herd(void)
{
	struct actor animals[HERD], victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = come_after_herd};
	struct actor opener = {.comm = "scn-opener", .cpu = other, .fifo = HIGH, .act = open_gate};

	for (int i = 0; i < HERD; i++) {
		animals[i] = (struct actor){
			.comm = "scn-herd", .cpu = cpu, .fifo = MIDDLE, .act = run_with_herd, .arg = &noted[i]};
		start(&animals[i]);
	}
	usleep(5000);
	start(&victim);
	begin = now() + 20 * MSEC;
	start(&opener);
	join(&opener);
	for (int i = 0; i < HERD; i++)
		join(&animals[i]);
	join(&victim);
	truth.culprit = opener.tid;
	for (int i = 0; i < HERD; i++)
		truth.part += overlap(&noted[i], truth.start, truth.end);
	if (!truth.spoilt && truth.part < (truth.end - truth.start) / 100 * 80)
		truth.spoilt = "others had the CPU as well";
}

/* ------------------------------------------------------------------ retries */

static volatile bool free_now;

static void keep_taken(struct actor *actor)
{
	(void)actor;
	sleep_until(begin + LONG);
	free_now = true;
}

/* What cannot be had yet is asked for again, after a while. */
noinline void try_again(void)
{
	while (!free_now)
		usleep(6000);
}

static void retry(void)
{
	struct actor taker = {.comm = "scn-taker", .cpu = other, .fifo = MIDDLE, .act = keep_taken};

	begin = now() + 10 * MSEC;
	start(&taker);
	sleep_until(begin);
	become_victim();
	try_again();
	done();
	join(&taker);
}

static int server, client;
static volatile uint64_t answered;

/* Does something else, and then answers the last one that came. */
static void answer_last(struct actor *actor)
{
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	char c;

	(void)actor;
	sleep_until(begin - MSEC);
	spin_until(begin + LONG);
	need(recvfrom(server, &c, 1, 0, (struct sockaddr *)&from, &size) == 1, "receive");
	answered = now();
	need(sendto(server, &c, 1, 0, (struct sockaddr *)&from, size) == 1, "answer");
}

/* As resolvers ask a server of names. */
noinline void ask_again(void)
{
	struct pollfd fd = {.fd = client, .events = POLLIN};
	char c = 'x';

	do
		need(send(client, &c, 1, 0) == 1, "ask");
	while (poll(&fd, 1, 12) == 0);
	need(recv(client, &c, 1, 0) == 1, "receive");
}

static void udp_retry(void)
{
	struct actor busy = {.comm = "scn-server", .cpu = other, .fifo = MIDDLE, .act = answer_last};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);

	server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	need(server >= 0 && client >= 0 && bind(server, (struct sockaddr *)&at, size) == 0, "bind");
	need(getsockname(server, (struct sockaddr *)&at, &size) == 0, "find the port");
	need(connect(client, (struct sockaddr *)&at, size) == 0, "connect");
	begin = now() + 10 * MSEC;
	start(&busy);
	sleep_until(begin);
	become_victim();
	ask_again();
	done();
	join(&busy);
	truth.culprit = busy.tid;
	truth.part = answered - truth.start;
}

/* --------------------------------------------------------------- neighbours */

static void be_neighbour(struct stretches *s)
{
	struct sched_param param = {0};
	char pid[16];

	/* Cgroups take no real-time tasks in that they have no time for. */
	need(sched_setscheduler(0, SCHED_OTHER, &param) == 0, "become an ordinary task");
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(argument, "cgroup.procs", pid);
	name_thread("scn-neighbour");
	pin_thread(cpu);
	sleep_until(begin);
	spin_noting(s, until);
	__atomic_store_n(&s->count, -s->count, __ATOMIC_RELEASE); /* over; tailcam may ask the kernel about it still */
	for (;;)
		pause();
}

/* Some 10 ms of work in the kernel, in one call: it is one latency, however often it loses its CPU. */
static void compute(struct actor *actor)
{
	const size_t size = 8 << 20;
	char *buf = pages(size);

	truth.victim = actor->tid;
	sleep_until(begin - 2 * MSEC);
	truth.start = now();
	need(syscall(SYS_getrandom, buf, size, 0) == (ssize_t)size, "get random bytes");
	truth.end = now();
}

#define NEIGHBOURS 3

/* Another cgroup, of a far greater weight, has its CPU. */
static void neighbour(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .act = compute};
	struct stretches *ran = mmap(NULL, NEIGHBOURS * sizeof(*ran), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	need(argument && ran != MAP_FAILED, "shared memory, and a cgroup for neighbours");
	begin = now() + 50 * MSEC;
	until = begin + 3 * LONG;
	for (int i = 0; i < NEIGHBOURS; i++) {
		pid_t pid = fork();

		need(pid >= 0, "fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			be_neighbour(&ran[i]);
		}
	}
	start(&victim);
	join(&victim);
	for (int i = 0; i < NEIGHBOURS; i++) {
		while (__atomic_load_n(&ran[i].count, __ATOMIC_ACQUIRE) >= 0)
			usleep(1000);
		ran[i].count = -ran[i].count;
		truth.part += overlap(&ran[i], truth.start, truth.end);
	}
	if (!truth.spoilt && truth.part < (truth.end - truth.start) / 100 * 60)
		truth.spoilt = "others had the CPU as well";
}

/* ---------------------------------------------------------------- idle CPUs */

static void wake_when_due(struct actor *actor)
{
	truth.victim = actor->tid;
	sleep_until(begin);
	truth.end = now();
	truth.start = begin;
}

static void keep_busy(struct actor *actor)
{
	(void)actor;
	spin_until(begin - MSEC / 2);
}

/* The victim's CPU idles when it is due, and was busy until shortly before. The harness makes the way back long. */
static void idle_cpu(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wake_when_due};
	struct actor busy = {.comm = "scn-busy", .cpu = cpu, .fifo = LOW, .act = keep_busy};

	pin_thread(other);
	begin = now() + 100 * MSEC;
	start(&victim);
	start(&busy);
	sleep_until(begin + MSEC);
	join(&busy);
	join(&victim);
}

const struct scenario crowd_scenarios[] = {
	{"herd", herd},		  {"retry", retry},	  {"udp-retry", udp_retry},
	{"neighbour", neighbour}, {"idle-cpu", idle_cpu}, {NULL, NULL},
};
