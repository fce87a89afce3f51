/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scenarios share. Each has one victim that is slow once, for a reason
 * that the program knows, and prints the truth as one JSON object.
 */
#ifndef TAILCAM_SCENARIO_H
#define TAILCAM_SCENARIO_H

#include "inject.h"

#include <pthread.h>
#include <semaphore.h>

#define MSEC 1000000ull
/* Real-time priorities: whatever else the machine has to do comes after them. */
enum { LOW = 40, MIDDLE = 60, HIGH = 80, HIGHEST = 90 };

#define LONG (40 * MSEC) /* how long victims are held */

/* What really happened, by CLOCK_MONOTONIC. */
struct truth {
	pid_t victim;	     /* 0: a worker of the kernel */
	pid_t culprit;	     /* 0: not a task of this program */
	pid_t root;	     /* who kept the culprit; 0: nobody */
	uint64_t start, end; /* of what the victim waited for */
	uint64_t part;	     /* of it, what the culprit took; 0: all */
	uint64_t request;    /* the token that the culprit carried; 0: none */
	const char *trace;   /* that the culprit had published; NULL: none */
	const char *behind;  /* that the root had, likewise */
	bool crowded;	     /* no other CPU was idle all the time */
	const char *spoilt;  /* why this run says nothing; NULL: it does */
};

extern struct truth truth;

/* What the command line says. */
extern const char *victim_comm; /* the name that the rule looks for */
extern int cpu, other;		/* where the victim is, and where it is not */
extern const char *argument;	/* of the scenario; NULL: none */

/* A thread with a name of its own. */
struct actor {
	const char *comm;
	int cpu; /* -1: any */
	int fifo, nice;
	void (*act)(struct actor *);
	void *arg;
	sem_t done;
	volatile pid_t tid;
};

void start(struct actor *actor);
/* Waits until it has done its work. It stays, so that tailcam can ask the kernel about it. */
void join(struct actor *actor);

/* Waits until it is at: by sleep, and in the end by looking at the clock. */
void exactly(uint64_t at);

/* The calling thread is the victim from now on, and until done(). */
void become_victim(void);
void done(void);

void put(const char *dir, const char *file, const char *text);

char *pages(size_t size); /* that are there */
/* A new file of the directory that is the argument; one that is on the disk, and bypasses the page cache. */
int file_in(const char *name, size_t size);
int direct_file(const char *name, size_t size);
/* The victim reads from such a one when that many requests of others are under way, which write slowly. */
void read_behind(int fd, unsigned long deep);

/* When a thread that wants to run all the time did run. */
struct stretches {
	struct stretch {
		uint64_t from, to;
	} at[32768];
	int count;
};

void spin_noting(struct stretches *s, uint64_t until);
uint64_t overlap(const struct stretches *s, uint64_t from, uint64_t to);

/* Runs until it was off its CPU for at least this long, or until the time; fills in start and end. */
void look_for_gap(uint64_t least, uint64_t until);
/* In how many pieces it was. */
extern long gap_pieces;

/* The scenarios, by file. NULL ends a list. */
struct scenario {
	const char *name;
	void (*run)(void);
};

extern const struct scenario cpu_scenarios[], held_scenarios[], wait_scenarios[], peer_scenarios[], disk_scenarios[],
	pattern_scenarios[], tcp_scenarios[], limit_scenarios[], turn_scenarios[], ended_scenarios[], share_scenarios[],
	process_scenarios[], crowd_scenarios[], bulk_scenarios[], postgres_scenarios[], service_scenarios[],
	asked_scenarios[], request_scenarios[], served_scenarios[], kernel_lock_scenarios[];

#endif
