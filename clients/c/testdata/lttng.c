/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the nanoseconds of a tracepoint of LTTng-UST, as client.c does those of a switch. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-tp.h"

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 50, EACH = 100000 };

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int main(void)
{
	uint64_t best = UINT64_MAX, began, took;

	for (int round = 0; round < ROUNDS; round++) {
		began = now();
		for (uint64_t i = 0; i < EACH; i++)
			lttng_ust_tracepoint(tailcam_bench, switched, i);
		took = now() - began;
		best = took < best ? took : best;
	}
	printf("{\"lttng_ust_ns\":%.1f}\n", (double)best / EACH);
	return 0;
}
