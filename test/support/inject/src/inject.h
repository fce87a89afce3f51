/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the injectors share: the clock, system calls that leave the caller's own
 * function on top of the user stack, and the list of what was injected.
 */
#ifndef TAILCAM_INJECT_H
#define TAILCAM_INJECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define noinline __attribute__((noinline))

#define NSEC 1000000000ull

/* One injected latency, by the injector's own CLOCK_MONOTONIC. */
struct event {
	const char *track;
	const char *kind; /* over, under, spoilt, request, edge, dead */
	const char *func; /* the function whose name must be on the user stack */
	char comm[16];
	pid_t pid;
	pid_t tid;
	int cpu;	   /* -1: not pinned */
	uint64_t since_ns; /* up to start_ns nothing was injected; 0: not known */
	uint64_t start_ns;
	uint64_t end_ns; /* 0: the call never returned */
	int64_t offset;	 /* block only, else -1 */
	bool alone;	 /* who had the CPU instead had it all the time */
};

/* A list that one thread appends to; memory is taken beforehand. */
struct events {
	struct event *at;
	size_t count, room;
	uint64_t since; /* the end of the last one, or when the thread got ready for the first */
};

void events_init(struct events *events, size_t room);
/* Appends what the calling thread did, under its present name and on the CPU that it is pinned to. */
struct event *events_add(struct events *events, const char *track, const char *kind, const char *func, uint64_t start,
			 uint64_t end);
void events_print(const struct events *events);

/* Prints to standard error and ends the program with status 1. */
void die(const char *what) __attribute__((noreturn));
/* The same, unless condition holds; errno says why. */
void need(bool condition, const char *what);

uint64_t now(void);
void sleep_until(uint64_t at);
void spin_until(uint64_t at);

void name_thread(const char *comm);
void pin_thread(int cpu);
int fifo_thread(int priority); /* 0 or -1 with errno */
int allowed_cpus(int *cpus, int room);

/* Voluntary and involuntary switches of the calling thread. */
struct switches {
	long slept, preempted;
};
struct switches switches(void);

long number(const char *text, long min, long max);

/* Spreads `over` evenly among over + under: true when number i is an over. */
bool is_over(long i, long over, long under);

/* The kind of an event: over, under, or spoilt when an over came out short. */
const char *kind_of(bool over, uint64_t delay, uint64_t asked);

/*
 * A system call from the function in which it is written: a wrapper of libc
 * keeps no frame pointer, and would hide its caller from a stack walk.
 */
static inline __attribute__((always_inline)) long raw(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error "write the system call instruction of this machine here"
#endif
}

/* The subcommands; argv[0] is the subcommand's name. */
int cmd_wakeup(int argc, char **argv);
int cmd_offcpu(int argc, char **argv);
int cmd_syscall(int argc, char **argv);
int cmd_edge(int argc, char **argv);
int cmd_block(int argc, char **argv);
int cmd_samecpu(int argc, char **argv);
int cmd_preempt(int argc, char **argv);
int cmd_newtask(int argc, char **argv);
int cmd_chain(int argc, char **argv);
int cmd_shift(int argc, char **argv);
int cmd_pair(int argc, char **argv);
int cmd_walk(int argc, char **argv);

#endif
