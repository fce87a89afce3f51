/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that something else than a task keeps from running. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile uint64_t due;

static bool old_cgroups(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/tasks", argument);
	return access(path, F_OK) == 0;
}

static void enter_cgroup(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	put(argument, "cgroup.procs", pid);
}

/* For how long a cgroup was not let run, by the kernel's own account. */
static uint64_t throttled_in(const char *group)
{
	unsigned long long ns = 0, us = 0;
	char path[512], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/cpu.stat", group);
	f = fopen(path, "re");
	need(f, path);
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "throttled_time %llu", &ns);
		sscanf(line, "throttled_usec %llu", &us);
	}
	fclose(f);
	return ns ? ns : 1000 * us;
}

/* The same of the one whose quota is used up. */
static uint64_t throttled(void)
{
	const char *above = getenv("SCENARIO_QUOTA");

	return throttled_in(above ? above : argument);
}

/* Runs in a cgroup that may run a tenth of the time. */
static void quota_victim(struct actor *actor)
{
	(void)actor;
	uint64_t until = now() + 600 * MSEC;

	look_for_gap(LONG, until);
	while (now() < until && throttled() < (truth.end - truth.start) / 100 * 95) {
		truth.start = truth.end = 0;
		look_for_gap(LONG, until);
	}
	if (throttled() < (truth.end - truth.start) / 100 * 95)
		truth.spoilt = "it was not the quota";
	else if (truth.end - truth.start > 100 * MSEC && gap_pieces != 1) /* longer than a period of the quota */
		truth.spoilt = "the victim ran for a moment";
}

static void quota(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .nice = -15, .act = quota_victim};

	/* No quota is for real-time tasks, and no such cgroup takes them in. */
	struct sched_param param = {0};
	need(sched_setscheduler(0, SCHED_OTHER, &param) == 0, "become an ordinary task");
	enter_cgroup();
	start(&victim);
	join(&victim);
}

/* Others of the cgroup above use up its quota, while the victim's own cgroup still has some. */
static void quota_above(void)
{
	const char *sibling = getenv("SCENARIO_SIBLING");

	if (!sibling)
		die("this scenario wants SCENARIO_SIBLING");
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		struct sched_param param = {0};

		need(sched_setscheduler(0, SCHED_OTHER, &param) == 0, "become an ordinary task");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name_thread("scn-sibling");
		pin_thread(other);
		need(setpriority(PRIO_PROCESS, 0, -20) == 0, "set a nice value");
		put(sibling, "cgroup.procs", "0");
		for (;;)
			;
	}
	quota();
	kill(pid, SIGKILL);
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
	if (throttled_in(argument) > 0)
		truth.spoilt = "its own quota was used up as well";
}

/* What this thread has had of its CPU: the kernel leaves out what the hypervisor says that it took. */
static uint64_t had(void)
{
	struct timespec ts;

	need(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) == 0, "read the thread's clock");
	return ts.tv_sec * 1000 * MSEC + ts.tv_nsec;
}

/* Makes the culprit, an ordinary process on the other CPU and in such a cgroup. True in there. */
static bool is_culprit(const char *comm)
{
	struct sched_param param = {0};

	truth.culprit = fork();
	need(truth.culprit >= 0, "fork");
	if (truth.culprit != 0)
		return false;
	need(sched_setscheduler(0, SCHED_OTHER, &param) == 0, "become an ordinary task");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	name_thread(comm);
	pin_thread(other);
	enter_cgroup();
	return true;
}

/* More than the quota of a period or two. */
static void exceed_quota(void)
{
	for (uint64_t until = had() + 25 * MSEC; had() < until;)
		;
}

/* Its server runs in such a cgroup, and has more to do than that. */
static void quota_server(void)
{
	int pair[2];
	char c;

	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "make a pair of sockets");
	if (is_culprit("scn-server")) {
		need(write(pair[1], "x", 1) == 1 && read(pair[1], &c, 1) == 1, "read a request");
		exceed_quota();
		need(write(pair[1], "x", 1) == 1, "answer");
		pause();
	}
	need(read(pair[0], &c, 1) == 1, "wait for the server");
	uint64_t before = throttled();

	become_victim();
	need(write(pair[0], "x", 1) == 1 && read(pair[0], &c, 1) == 1, "ask");
	done();
	if (throttled() - before < (truth.end - truth.start) / 2)
		truth.spoilt = "it was not the quota";
}

/* Who has a lock of a file is in such a cgroup, and has more to do until it lets go. */
static void quota_lock(void)
{
	char path[64], c;
	int pair[2];

	snprintf(path, sizeof(path), "/tmp/tailcam-scenario-%d", getpid());
	int mine = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), its = open(path, O_RDWR | O_CLOEXEC);
	need(mine >= 0 && its >= 0 && unlink(path) == 0, path);
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "make a pair of sockets");
	if (is_culprit("scn-holder")) {
		need(flock(its, LOCK_EX) == 0, "flock");
		need(write(pair[1], "x", 1) == 1 && read(pair[1], &c, 1) == 1, "wait for the victim");
		exceed_quota();
		need(flock(its, LOCK_UN) == 0, "flock");
		pause();
	}
	need(read(pair[0], &c, 1) == 1, "wait for the holder");
	uint64_t before = throttled();

	become_victim();
	need(write(pair[0], "x", 1) == 1 && flock(mine, LOCK_EX) == 0, "flock");
	done();
	if (throttled() - before < (truth.end - truth.start) / 2)
		truth.spoilt = "it was not the quota";
}

static struct truth *shared;

/* The victim is another process, which tells what it saw through shared memory. Returns when it runs. */
static pid_t in_child(void (*body)(void))
{
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(shared != MAP_FAILED, "shared memory");
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		body();
		name_thread("scn-idle");
		*shared = truth;
		_exit(0);
	}
	while (!__atomic_load_n(&shared->victim, __ATOMIC_ACQUIRE))
		usleep(200);
	sleep_until(now() + 20 * MSEC);
	return pid;
}

static void child_in(pid_t pid)
{
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
	truth = *shared;
	truth.culprit = getpid();
	if (!truth.victim)
		die("the victim said nothing");
	if (truth.spoilt)
		truth.spoilt = "the victim was not held"; /* the text is the child's */
}

static void run_on(void)
{
	name_thread(victim_comm);
	pin_thread(cpu);
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	__atomic_store_n(&shared->victim, gettid(), __ATOMIC_RELEASE);
	look_for_gap(LONG / 2, now() + 300 * MSEC);
}

/* The victim is stopped by a signal, and let go on. */
static void stopped(void)
{
	name_thread("scn-stopper");
	pin_thread(other);
	pid_t pid = in_child(run_on);
	kill(pid, SIGSTOP);
	sleep_until(now() + LONG);
	kill(pid, SIGCONT);
	child_in(pid);
}

static void run_frozen(void)
{
	enter_cgroup();
	run_on();
}

/* The victim's cgroup is frozen, and thawed. */
static void frozen(void)
{
	bool old = old_cgroups();

	name_thread("scn-freezer");
	pin_thread(other);
	pid_t pid = in_child(run_frozen);
	put(argument, old ? "freezer.state" : "cgroup.freeze", old ? "FROZEN" : "1");
	sleep_until(now() + LONG);
	put(argument, old ? "freezer.state" : "cgroup.freeze", old ? "THAWED" : "0");
	child_in(pid);
}

static void wake_when_due(struct actor *actor)
{
	truth.victim = actor->tid;
	sleep_until(due);
	truth.end = now();
	truth.start = due;
}

static void send_before_due(struct actor *actor)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(to);
	int in = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)actor;
	need(in >= 0 && out >= 0, "make a socket");
	need(bind(in, (struct sockaddr *)&to, sizeof(to)) == 0, "bind to loopback");
	need(getsockname(in, (struct sockaddr *)&to, &size) == 0, "find the port");
	exactly(due - 2 * MSEC);
	need(sendto(out, "x", 1, 0, (struct sockaddr *)&to, size) == 1, "send");
	close(in);
	close(out);
}

/* A packet whose softirq takes long, which the harness sees to, comes just before the victim is due. */
static void softirq(void)
{
	struct actor sender = {.comm = "scn-sender", .cpu = cpu, .fifo = LOW, .act = send_before_due};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wake_when_due};

	due = now() + 40 * MSEC;
	start(&victim);
	start(&sender);
	join(&victim);
	join(&sender);
}

static uint32_t words[2];

static void wait_for_word(struct actor *actor)
{
	uint32_t *word = actor->arg;

	while (!__atomic_load_n(word, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	if (word == &words[0]) {
		truth.end = now();
		truth.victim = actor->tid;
	}
}

static void say_word(uint32_t *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wake_another(struct actor *actor)
{
	(void)actor;
	exactly(due - 2 * MSEC);
	say_word(&words[1]);
}

/*
 * A task of lower rank wakes another one, which the kernel does with interrupts
 * off, and which the harness makes long. Meanwhile the victim is woken from
 * elsewhere: it goes first, but its CPU does not hear of it.
 */
static void irqs_off(void)
{
	struct actor sleeper = {
		.comm = "scn-sleeper", .cpu = other, .fifo = MIDDLE, .act = wait_for_word, .arg = &words[1]};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wait_for_word, .arg = &words[0]};
	struct actor culprit = {.comm = "scn-irqs-off", .cpu = cpu, .fifo = LOW, .act = wake_another};

	due = now() + 40 * MSEC;
	pin_thread(other);
	start(&sleeper);
	start(&victim);
	start(&culprit);
	exactly(due);
	truth.start = now();
	say_word(&words[0]);
	join(&victim);
	join(&culprit);
	join(&sleeper);
	truth.culprit = culprit.tid;
}

/* Gives the hypervisor a reason to let others run: no CPU idles. */
static void keep_busy(struct actor *actor)
{
	struct sched_param param = {0};

	(void)actor;
	need(sched_setscheduler(0, SCHED_IDLE, &param) == 0, "become an idle task");
	while (now() < due)
		;
}

/* That it is no tick, and more than the least that is looked for. */
#define ENOUGH (3 * MSEC / 2)

/* Computes in the kernel, the same tenth of a millisecond every time, and notes the call that was kept from its CPU longest. */
static void compute(struct actor *actor)
{
	static char buf[64 << 10];

	truth.victim = actor->tid;
	for (uint64_t pause_at = now() + 500 * MSEC; now() < due && truth.part < ENOUGH;) {
		struct switches before = switches();
		uint64_t ran = had(), start = now();

		need(syscall(SYS_getrandom, buf, sizeof(buf), 0) == sizeof(buf), "get random bytes");
		uint64_t end = now();

		ran = had() - ran;
		struct switches after = switches();

		if (after.slept == before.slept && after.preempted == before.preempted && end - start > ran &&
		    end - start - ran > truth.part) {
			truth.start = start;
			truth.end = end;
			truth.part = end - start - ran;
		}
		if (end > pause_at) { /* real-time tasks may not have all of a CPU */
			sleep_until(end + 50 * MSEC);
			pause_at = now() + 500 * MSEC;
		}
	}
	due = now();
}

/* Nothing of this machine keeps the victim from running: what is missing, the hypervisor took. */
static void steal(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = HIGHEST, .act = compute}, busy[64];
	int cpus[64], count = allowed_cpus(cpus, 64);

	due = now() + 2000 * MSEC;
	for (int i = 0; i < count; i++) {
		busy[i] = (struct actor){.comm = "scn-busy", .cpu = cpus[i], .act = keep_busy};
		start(&busy[i]);
	}
	start(&victim);
	join(&victim);
	for (int i = 0; i < count; i++)
		join(&busy[i]);
	if (truth.part < MSEC)
		truth.spoilt = "the hypervisor took no CPU for a millisecond";
}

const struct scenario held_scenarios[] = {
	{"quota-lock", quota_lock}, /* of who holds a lock */
	{"quota-server", quota_server},
	{"quota", quota},
	{"stopped", stopped},
	{"frozen", frozen},
	{"softirq", softirq},
	{"irqs-off", irqs_off},
	{"quota-above", quota_above},
	{"steal", steal},
	{NULL, NULL},
};
