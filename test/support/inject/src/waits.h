/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads that are held for a known time, each by a partner of its own.
 * offcpu and syscall differ in which functions do the waiting.
 */
#ifndef TAILCAM_WAITS_H
#define TAILCAM_WAITS_H

#include <stdbool.h>
#include <stdint.h>

/* What one wait may use. */
struct wait {
	int fd;		   /* readable when the partner lets go */
	uint32_t *word;	   /* 1 when the partner lets go, woken as a futex */
	uint64_t length;   /* for waits that need no partner: */
	uint64_t deadline; /* the same from when it began */
};

struct way {
	const char *name; /* on the command line */
	const char *func;
	void (*wait)(struct wait *wait);
	enum partner { PARTNER_NONE, PARTNER_PIPE, PARTNER_FUTEX } partner;
};

/*
 * Runs a subcommand whose arguments are WAY N_OVER over_us N_UNDER under_us threads.
 * A wait in which the thread was preempted is spoilt; with one_sleep, so is one in
 * which it slept more than once: the kernel has seen it in pieces.
 */
int waits_run(const char *track, const char *comm, bool one_sleep, const struct way *ways, int way_count, int argc,
	      char **argv);

#endif
