/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that are ready to run while other tasks have their CPU. */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_HOGS 64

static uint64_t due, until;
static struct stretches noted[MAX_HOGS];

/* Sleeps until it is due, and notes when it ran. */
static void wake_when_due(struct actor *actor)
{
	truth.victim = actor->tid;
	sleep_until(due);
	truth.end = now();
	truth.start = due;
}

static void prepare(void)
{
	due = now() + 50 * MSEC;
	until = due + LONG;
}

/* Has the CPU from just before the victim is due. */
static void spin_from_due(struct actor *actor)
{
	(void)actor;
	exactly(due - 2 * MSEC);
	spin_noting(&noted[0], until);
}

/* Whoever else had the CPU, the hypervisor included, had it for less. */
static void most(void)
{
	if (!truth.spoilt && truth.part < (truth.end - truth.start) / 100 * 60)
		truth.spoilt = "others had the CPU as well";
}

/* A task with a real-time priority has the CPU when the victim is due. */
static void rt_hog(void)
{
	struct actor hog = {.comm = "scn-hog", .cpu = cpu, .fifo = HIGH, .act = spin_from_due};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wake_when_due};

	prepare();
	start(&victim);
	start(&hog);
	join(&victim);
	join(&hog);
	truth.culprit = hog.tid;
	truth.part = overlap(&noted[0], truth.start, truth.end);
	most();
}

/* Forks without end from just before the victim is due: each copies the page tables. */
static void fork_from_due(struct actor *actor)
{
	struct sched_param own = {.sched_priority = actor->fifo};
	struct stretches *s = &noted[0];

	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &own)) /* children come last */
		truth.spoilt = "priorities cannot be reset";
	exactly(due - 2 * MSEC);
	while (now() < until && s->count < (int)(sizeof(s->at) / sizeof(s->at[0]))) {
		uint64_t from = now();
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		s->at[s->count++] = (struct stretch){from, now()};
	}
}

/* A real-time task whose process has much memory forks when the victim is due. */
static void forker(void)
{
	struct actor hog = {.comm = "scn-forker", .cpu = cpu, .fifo = HIGH, .act = fork_from_due};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = wake_when_due};
	size_t size = 512 << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || (madvise(memory, size, MADV_NOHUGEPAGE) && errno != EINVAL)) {
		truth.spoilt = "there is no memory";
		return;
	}
	memset(memory, 1, size);
	prepare();
	start(&victim);
	start(&hog);
	join(&victim);
	join(&hog);
	while (waitpid(-1, NULL, 0) > 0)
		;
	truth.culprit = hog.tid;
	truth.part = overlap(&noted[0], truth.start, truth.end);
	most();
}

static void queue_work(struct actor *actor)
{
	(void)actor;
	exactly(due);
	truth.start = now();
	put("/proc/sys/vm", "stat_refresh", "1"); /* queues work on each CPU, and waits for it */
	truth.end = now();
}

/* A task with a real-time priority has the CPU on which a work item is queued: no worker takes it. */
static void work_item(void)
{
	struct actor hog = {.comm = "scn-hog", .cpu = cpu, .fifo = HIGH, .act = spin_from_due};
	struct actor queuer = {.comm = "scn-queuer", .cpu = other, .fifo = MIDDLE, .act = queue_work};

	prepare();
	start(&hog);
	start(&queuer);
	join(&hog);
	join(&queuer);
	truth.culprit = hog.tid;
	truth.part = overlap(&noted[0], truth.start, truth.end);
	most();
}

static void want_cpu(struct actor *actor)
{
	(void)actor;
	look_for_gap(LONG / 2, until + LONG);
	if (gap_pieces != 1)
		truth.spoilt = "the victim ran for a moment";
}

/* A task with a far better nice value comes, and keeps the CPU. */
static void nice_hog(void)
{
	struct actor hog = {.comm = "scn-nicer", .cpu = cpu, .nice = -20, .act = spin_from_due};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .nice = 19, .act = want_cpu};

	prepare();
	start(&hog);
	sleep_until(due - 20 * MSEC);
	start(&victim);
	join(&hog);
	join(&victim);
	truth.culprit = hog.tid;
	truth.part = overlap(&noted[0], truth.start, truth.end);
	most();
}

static void want_cpu_if_idle(struct actor *actor)
{
	struct sched_param param = {0};

	need(sched_setscheduler(0, SCHED_IDLE, &param) == 0, "become SCHED_IDLE");
	want_cpu(actor);
}

static void spin_all_the_time(struct actor *actor)
{
	sleep_until(due);
	spin_noting(actor->arg, until);
}

static void begin_hog(struct actor *hog, const char *comm, int at, int n)
{
	*hog = (struct actor){.comm = comm, .cpu = at, .nice = -20, .act = spin_all_the_time, .arg = &noted[n]};
	start(hog);
}

/* Keeps all CPUs busy on which the victim could run if it were not pinned. Adds to n hogs; returns how many there are. */
static int begin_elsewhere(struct actor *hogs, int n)
{
	int cpus[MAX_HOGS];
	int count = allowed_cpus(cpus, MAX_HOGS - n);

	for (int i = 0; i < count; i++) {
		if (cpus[i] != cpu) {
			begin_hog(&hogs[n], "scn-elsewhere", cpus[i], n);
			n++;
		}
	}
	return n;
}

/* An ordinary task comes to a CPU on which one runs that hardly runs beside such. */
static void idle_policy(void)
{
	struct actor elsewhere[MAX_HOGS];
	struct actor hog = {.comm = "scn-hog", .cpu = cpu, .act = spin_from_due};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .act = want_cpu_if_idle};
	int count;

	prepare();
	start(&hog);
	count = begin_elsewhere(elsewhere, 1); /* 0 is the hog */
	sleep_until(due - 20 * MSEC);
	start(&victim);
	join(&hog);
	join(&victim);
	while (count > 1)
		join(&elsewhere[--count]);
	truth.culprit = hog.tid;
	truth.part = overlap(&noted[0], truth.start, truth.end);
	most();
}

/* What processes of other sessions share with the one that began. */
static struct sessions {
	struct truth truth;
	struct stretches noted;
	volatile pid_t victim, hog;
	volatile bool done;
} *sessions;

/* A process in a session of its own, with a nice value of that for other sessions. */
static void in_session(const char *comm, int nice, const char *group_nice, void (*body)(void))
{
	struct sched_param param = {0};
	pid_t pid = fork();

	need(pid >= 0, "fork");
	if (pid != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	need(setsid() > 0, "begin a session");
	put("/proc/self", "autogroup", group_nice);
	name_thread(comm);
	pin_thread(cpu);
	need(sched_setscheduler(0, SCHED_OTHER, &param) == 0, "become an ordinary task");
	need(setpriority(PRIO_PROCESS, 0, nice) == 0, "set a nice value");
	body();
	for (;;)
		pause();
}

static void victim_of_session(void)
{
	sessions->victim = getpid();
	want_cpu(NULL);
	name_thread("scn-idle");
	sessions->truth = truth;
	sessions->done = true;
}

static void hog_of_session(void)
{
	sessions->hog = getpid();
	exactly(due - 2 * MSEC);
	spin_noting(&sessions->noted, until);
}

/* The victim has the best nice value, and its session the worst. */
static void autogroup(void)
{
	struct actor elsewhere[MAX_HOGS];
	int count;

	sessions = mmap(NULL, sizeof(*sessions), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(sessions != MAP_FAILED, "shared memory");
	if (access("/proc/self/autogroup", W_OK) != 0) {
		truth.spoilt = "this kernel has no autogroups";
		return;
	}
	prepare();
	in_session("scn-hog", 0, "0", hog_of_session);
	sleep_until(due - 20 * MSEC);
	in_session(victim_comm, -20, "19", victim_of_session);
	count = begin_elsewhere(elsewhere, 0);
	sleep_until(until);
	while (!sessions->done && now() < until + 3 * LONG)
		usleep(200);
	while (count > 0)
		join(&elsewhere[--count]);
	truth = sessions->truth;
	truth.culprit = sessions->hog;
	truth.part = overlap(&sessions->noted, truth.start, truth.end);
	if (!sessions->done || truth.spoilt)
		truth.spoilt = "the victim was not kept off its CPU by one alone"; /* the text is the child's */
	else
		most();
}

/* Runs beside hogs of its own rank, the first `here` of which are on its CPU. */
static void among(struct actor *hogs, int here, int all)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .nice = -20, .act = want_cpu};

	start(&victim);
	join(&victim);
	for (int i = 0; i < all; i++)
		join(&hogs[i]);
	truth.culprit = hogs[0].tid;
	for (int i = 0; i < here; i++)
		truth.part += overlap(&noted[i], truth.start, truth.end);
	most();
}

#define HERE 12

/* Every CPU has more to do than it can, all of one rank. */
static void many_equals(void)
{
	struct actor hogs[MAX_HOGS];

	prepare();
	until = due + 5 * LONG;
	for (int i = 0; i < HERE; i++)
		begin_hog(&hogs[i], "scn-equal", cpu, i);
	among(hogs, HERE, begin_elsewhere(hogs, HERE));
}

/* For how long each CPU was idle, by the kernel's own account. */
static void read_idle(uint64_t *idle, const int *cpus, int count)
{
	FILE *f = fopen("/proc/stat", "re");
	char line[512];

	need(f, "/proc/stat");
	while (fgets(line, sizeof(line), f)) {
		unsigned long long idles, waits;
		int which;

		if (sscanf(line, "cpu%d %*s %*s %*s %llu %llu", &which, &idles, &waits) != 3)
			continue;
		for (int i = 0; i < count; i++) {
			if (cpus[i] == which)
				idle[i] = (idles + waits) * NSEC / (uint64_t)sysconf(_SC_CLK_TCK);
		}
	}
	fclose(f);
}

/* Tied to a crowded CPU, while others idle. */
static void pinned(void)
{
	struct actor hogs[HERE];
	int cpus[MAX_HOGS];
	int count = allowed_cpus(cpus, MAX_HOGS);
	uint64_t before[MAX_HOGS] = {0}, after[MAX_HOGS] = {0}, idle = 0;

	prepare();
	until = due + 5 * LONG;
	for (int i = 0; i < HERE; i++)
		begin_hog(&hogs[i], "scn-equal", cpu, i);
	sleep_until(due);
	read_idle(before, cpus, count);
	among(hogs, HERE, HERE);
	read_idle(after, cpus, count);
	for (int i = 0; i < count; i++) {
		if (cpus[i] != cpu && after[i] - before[i] > idle)
			idle = after[i] - before[i];
	}
	truth.crowded = idle < (until - due) / 100 * 90;
}

const struct scenario cpu_scenarios[] = {
	{"rt-hog", rt_hog},	      {"forker", forker},	    {"work-item", work_item},
	{"nice-hog", nice_hog},	      {"many-equals", many_equals}, {"pinned", pinned},
	{"idle-policy", idle_policy}, {"autogroup", autogroup},	    {NULL, NULL},
};
