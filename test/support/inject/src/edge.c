/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that do not simply return: killed inside, ended by execve or by
 * another thread's exit, interrupted, restarted. What died in a call must leave
 * nothing behind (kind dead); what returned is a call like any other (kind edge).
 * Each case runs in a process of its own and reports through shared memory.
 */
#define _GNU_SOURCE
#include "inject.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMM "inj-edge"
#define BLOCKED 4 /* threads that sit in a call while something ends them */

static struct shared {
	uint32_t reserved, count;
	struct event event[16];
} *shared;

static uint64_t hold_ns;
static int empty[2]; /* a pipe that nobody writes to, but where a case says so */

/* Reports one call; counted last, as the parent waits for the count. */
static void report(const char *kind, const char *func, pid_t tid, uint64_t start, uint64_t end)
{
	uint32_t slot = __atomic_fetch_add(&shared->reserved, 1, __ATOMIC_RELAXED);

	shared->event[slot] = (struct event){
		.track = "syscall",
		.kind = kind,
		.func = func,
		.comm = COMM,
		.pid = getpid(),
		.tid = tid,
		.cpu = -1,
		.start_ns = start,
		.end_ns = end,
		.offset = -1,
	};
	__atomic_fetch_add(&shared->count, 1, __ATOMIC_RELEASE);
}

noinline long inject_edge_read(void)
{
	char byte;

	return raw(SYS_read, empty[0], (long)&byte, 1, 0, 0, 0);
}

noinline long inject_edge_sleep(const struct timespec *length)
{
	return raw(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)length, 0, 0, 0);
}

noinline void inject_edge_execve(void)
{
	char *argv[] = {"inject", "nothing", NULL};
	char *envp[] = {NULL};

	raw(SYS_execve, (long)"/proc/self/exe", (long)argv, (long)envp, 0, 0, 0);
}

static void *read_for_ever(void *unused)
{
	name_thread(COMM);
	report("dead", "inject_edge_read", gettid(), now(), 0);
	inject_edge_read();
	return unused;
}

static void start_blocked(void)
{
	for (int i = 0; i < BLOCKED; i++) {
		pthread_t thread;

		need(pthread_create(&thread, NULL, read_for_ever, NULL) == 0, "make a thread");
	}
	while (__atomic_load_n(&shared->count, __ATOMIC_ACQUIRE) < BLOCKED)
		usleep(100);
	sleep_until(now() + hold_ns);
}

/* ---------------------------------------------------- ended inside a call */

static void case_killed(void)
{
	start_blocked();
	kill(getpid(), SIGKILL);
}

static void case_exit_group(void)
{
	start_blocked();
	_exit(0);
}

static void *exec_from_here(void *unused)
{
	name_thread(COMM);
	start_blocked();
	inject_edge_execve();
	return unused;
}

/* The thread that executes takes over the leader's number. */
static void case_execve(void)
{
	pthread_t thread;

	need(pthread_create(&thread, NULL, exec_from_here, NULL) == 0, "make a thread");
	pthread_join(thread, NULL);
}

static void *exit_bare(void *unused)
{
	name_thread(COMM);
	report("dead", "exit_bare", gettid(), now(), 0);
	/* Never comes back, and so has no exit event. */
	raw(SYS_exit, 0, 0, 0, 0, 0, 0);
	return unused;
}

static void case_thread_exit(void)
{
	for (int i = 0; i < BLOCKED; i++) {
		pthread_t thread;

		need(pthread_create(&thread, NULL, exit_bare, NULL) == 0, "make a thread");
	}
	sleep_until(now() + hold_ns);
}

/* ------------------------------------------------- interrupted, restarted */

static volatile uint64_t handled_at;

static void handler(int signal)
{
	(void)signal;
	handled_at = now();
}

static void handle(int signal, int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	need(sigaction(signal, &action, NULL) == 0, "handle a signal");
}

static volatile bool returned; /* from the call, before which the first signal may have come */

static void interrupt_soon(void *target)
{
	sleep_until(now() + hold_ns);
	pthread_kill(*(pthread_t *)target, SIGUSR1);
}

static void *helper_interrupt(void *target)
{
	while (!returned)
		interrupt_soon(target);
	return NULL;
}

static void *helper_interrupt_then_write(void *target)
{
	interrupt_soon(target);
	sleep_until(now() + hold_ns);
	need(write(empty[1], "x", 1) == 1, "write to a pipe");
	return NULL;
}

static void with_helper(void *(*helper)(void *))
{
	static pthread_t self;
	pthread_t thread;

	self = pthread_self();
	need(pthread_create(&thread, NULL, helper, &self) == 0, "make a thread");
	name_thread(COMM);
}

static void case_interrupted(void)
{
	handle(SIGUSR1, 0);
	with_helper(helper_interrupt);
	uint64_t start = now();
	long ret = inject_edge_read();
	uint64_t end = now();
	returned = true;
	report(ret == -EINTR ? "edge" : "spoilt", "inject_edge_read", gettid(), start, end);
}

/* For its caller one read; for the kernel two, with a handler between them. */
static void case_restarted(void)
{
	handle(SIGUSR1, SA_RESTART);
	with_helper(helper_interrupt_then_write);
	uint64_t start = now();
	long ret = inject_edge_read();
	uint64_t end = now();
	const char *kind = ret == 1 && handled_at > start ? "edge" : "spoilt";
	report(kind, "inject_edge_read", gettid(), start, handled_at);
	report(kind, "inject_edge_read", gettid(), handled_at, end);
}

/* Stopped and continued by the parent: goes on as restart_syscall. */
static void case_stopped(void)
{
	struct timespec ts = {.tv_sec = (time_t)(3 * hold_ns / NSEC), .tv_nsec = (long)(3 * hold_ns % NSEC)};

	name_thread(COMM);
	uint64_t start = now();
	report("edge", "inject_edge_sleep", gettid(), start, 0);
	long ret = inject_edge_sleep(&ts);
	report(ret == 0 ? "edge" : "spoilt", "inject_edge_sleep", gettid(), 0, now());
}

/* Nothing slow here: handlers, and rt_sigreturn after each. */
static void case_sigreturn(void)
{
	handle(SIGUSR1, 0);
	name_thread(COMM);
	for (int i = 0; i < 1000; i++)
		raise(SIGUSR1);
}

/* ----------------------------------------------------------------- parent */

static void stop_and_go(pid_t child)
{
	while (__atomic_load_n(&shared->count, __ATOMIC_ACQUIRE) < 1)
		usleep(100);
	sleep_until(now() + hold_ns);
	uint64_t stopped = now();
	int status;
	kill(child, SIGSTOP);
	need(waitpid(child, &status, WUNTRACED) == child, "wait for a stop");
	uint64_t continued = now();
	kill(child, SIGCONT);
	need(WIFEXITED(status) || waitpid(child, NULL, 0) == child, "wait for a child");
	struct event *before = &shared->event[0], *after = &shared->event[1];
	before->end_ns = stopped;
	after->start_ns = continued;
	if (after->end_ns < continued) { /* it had slept long enough */
		before->kind = after->kind = "spoilt";
		before->end_ns = after->end_ns;
		after->start_ns = before->start_ns;
	}
}

static void run_case(void (*body)(void), bool stop)
{
	shared->reserved = shared->count = 0;
	memset(shared->event, 0, sizeof(shared->event));
	need(pipe(empty) == 0, "make a pipe");
	pid_t child = fork();
	need(child >= 0, "fork");
	if (child == 0) {
		name_thread("inj-idle");
		body();
		_exit(0);
	}
	if (stop)
		stop_and_go(child);
	else
		need(waitpid(child, NULL, 0) == child, "wait for a child");
	close(empty[0]);
	close(empty[1]);
	events_print(&(struct events){.at = shared->event, .count = shared->count});
}

int cmd_edge(int argc, char **argv)
{
	static const struct {
		void (*body)(void);
		bool stop;
	} cases[] = {
		{case_killed, false},	   {case_exit_group, false}, {case_execve, false}, {case_thread_exit, false},
		{case_interrupted, false}, {case_restarted, false},  {case_stopped, true}, {case_sigreturn, false},
	};

	if (argc != 3)
		die("edge wants rounds hold_us");
	long rounds = number(argv[1], 1, 100000);
	hold_ns = 1000 * (uint64_t)number(argv[2], 1, 10000000);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(shared != MAP_FAILED, "shared memory");
	fifo_thread(1); /* and so are the children: other work hardly delays them */
	for (long round = 0; round < rounds; round++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
			run_case(cases[i].body, cases[i].stop);
	}
	return 0;
}
