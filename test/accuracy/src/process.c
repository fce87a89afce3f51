/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that another process, or the kernel's work on their own, keeps. */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child tells. */
static struct told {
	pid_t tid;
	uint64_t at, start, end;
} *told;

static void share(void)
{
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(told != MAP_FAILED, "shared memory");
}

/* ------------------------------------------------------------------ tracers */

static void run_traced(void)
{
	name_thread(victim_comm);
	pin_thread(cpu);
	need(fifo_thread(MIDDLE) == 0, "become real-time");
	__atomic_store_n(&told->tid, gettid(), __ATOMIC_RELEASE);
	look_for_gap(LONG / 2, now() + 300 * MSEC);
	name_thread("scn-idle");
	told->start = truth.start;
	told->end = truth.end;
	_exit(0);
}

/* As a debugger does that looks at it. */
static void traced(void)
{
	int status;

	share();
	name_thread("scn-tracer");
	pin_thread(other);
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0)
		run_traced();
	while (!__atomic_load_n(&told->tid, __ATOMIC_ACQUIRE))
		usleep(200);
	sleep_until(now() + 20 * MSEC);
	need(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0, "seize");
	need(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0, "interrupt");
	need(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "wait for a stop");
	sleep_until(now() + LONG);
	need(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0, "detach");
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
	truth.victim = told->tid;
	truth.start = told->start;
	truth.end = told->end;
	truth.culprit = getpid();
	if (!truth.end)
		truth.spoilt = "the victim was not held";
}

/* ----------------------------------------------------------------- children */

static int run_and_end(void *arg)
{
	(void)arg;
	name_thread("scn-child");
	pin_thread(other);
	told->tid = gettid();
	spin_until(told->start + LONG);
	told->at = now();
	_exit(0);
}

/* A child has its parent's memory, who waits until it gives that back. */
static void vfork_wait(void)
{
	static char stack[64 << 10] __attribute__((aligned(16)));

	share();
	become_victim();
	told->start = truth.start;
	pid_t pid = clone(run_and_end, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	done();
	need(pid > 0, "vfork");
	truth.culprit = pid;
	truth.part = told->at - truth.start;
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
}

#define MUCH (768ul << 20)

/* A child ends that has much memory. */
static void exit_much(void)
{
	int ready[2];
	char c;

	share();
	need(pipe2(ready, O_CLOEXEC) == 0, "make a pipe");
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		char *memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		need(memory != MAP_FAILED, "memory");
		madvise(memory, MUCH, MADV_NOHUGEPAGE); /* where there are none it fails */
		memset(memory, 1, MUCH);
		name_thread("scn-ending");
		pin_thread(other);
		need(write(ready[1], "x", 1) == 1, "tell");
		sleep_until(now() + 20 * MSEC);
		told->at = now();
		_exit(0);
	}
	need(read(ready[0], &c, 1) == 1, "wait for a child");
	sleep_until(now() + 15 * MSEC);
	become_victim();
	need(waitpid(pid, NULL, 0) == pid, "wait for a child");
	done();
	truth.culprit = pid;
	if (truth.end - told->at < 10 * MSEC)
		truth.spoilt = "memory was given back at once";
}

/* ------------------------------------------------ page faults that a program handles */

static int faults;
static char *missing;
static uint64_t resolved;

static void handle_late(struct actor *actor)
{
	static char page[4096];
	struct pollfd fd = {.fd = faults, .events = POLLIN};
	struct uffd_msg fault;

	(void)actor;
	need(poll(&fd, 1, -1) == 1 && read(faults, &fault, sizeof(fault)) == sizeof(fault), "read a fault");
	spin_until(now() + LONG);
	struct uffdio_copy copy = {.dst = (uint64_t)missing, .src = (uint64_t)page, .len = sizeof(page)};

	resolved = now();
	need(ioctl(faults, UFFDIO_COPY, &copy) == 0, "resolve a fault");
}

static void touch(struct actor *actor)
{
	truth.victim = actor->tid;
	sleep_until(now() + 5 * MSEC);
	truth.start = now();
	if (*(volatile char *)missing != 0)
		die("the page is not what was put there");
	truth.end = now();
}

/* As with memory that is fetched from elsewhere when it is needed. */
static void user_fault(void)
{
	struct actor handler = {.comm = "scn-handler", .cpu = other, .fifo = MIDDLE, .act = handle_late};
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = touch};
	struct uffdio_api api = {.api = UFFD_API};

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	missing = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(faults >= 0 && missing != MAP_FAILED && ioctl(faults, UFFDIO_API, &api) == 0, "userfaultfd");
	struct uffdio_register all = {.range = {.start = (uint64_t)missing, .len = 4096},
				      .mode = UFFDIO_REGISTER_MODE_MISSING};

	need(ioctl(faults, UFFDIO_REGISTER, &all) == 0, "register memory");
	start(&handler);
	start(&victim);
	join(&victim);
	join(&handler);
	truth.culprit = handler.tid;
	truth.part = resolved - truth.start;
}

/* ---------------------------------------------------------- the kernel's own work */

/* The victim waits for nobody: what it asks for takes that long. */
static void own_work(void)
{
	int fd = memfd_create("scenario", MFD_CLOEXEC);

	need(fd >= 0, "memfd_create");
	become_victim();
	need(fallocate(fd, 0, 0, MUCH) == 0, "fallocate");
	done();
	truth.culprit = truth.victim;
	close(fd);
}

const struct scenario process_scenarios[] = {
	{"traced", traced},	    {"vfork", vfork_wait},  {"exit", exit_much},
	{"user-fault", user_fault}, {"own-work", own_work}, {NULL, NULL},
};
