/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject: latencies on demand. Each subcommand makes a known number of them
 * with many threads at once and then prints one JSON object a line for each,
 * measured on its own CLOCK_MONOTONIC.
 */
#include "inject.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;
} commands[] = {
	{"wakeup", cmd_wakeup, "N_OVER over_us N_UNDER under_us threads"},
	{"offcpu", cmd_offcpu, "read|futex|sleep|vfork|all N_OVER over_us N_UNDER under_us threads"},
	{"syscall", cmd_syscall, "read|poll|futex|sleep|all N_OVER over_us N_UNDER under_us threads"},
	{"edge", cmd_edge, "rounds hold_us"},
	{"block", cmd_block, "PATH read|write block_bytes requests threads"},
	{"samecpu", cmd_samecpu, "N_OVER over_us"},
	{"preempt", cmd_preempt, "N_OVER over_us N_UNDER under_us"},
	{"newtask", cmd_newtask, "N_OVER over_us"},
	{"chain", cmd_chain, "pipe|herd|udp THREADS rounds hold_us"},
	{"pair", cmd_pair, "steps bKEY|eKEY|cKEY|+MS..., or storm|calls THREADS rounds keys"},
	{"walk", cmd_walk, "N hold_us THREADS BUSY"},
	{"shift", cmd_shift, "THREADS OUTLIER_us SECONDS PHASE_us..."},
};

int main(int argc, char **argv)
{
	size_t count = sizeof(commands) / sizeof(commands[0]);

	/* What edge executes in a new image. */
	if (argc == 2 && strcmp(argv[1], "nothing") == 0)
		return 0;
	for (size_t i = 0; argc > 1 && i < count; i++) {
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	}
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, "%s inject %s %s\n", i ? "      " : "usage:", commands[i].name, commands[i].usage);
	return 1;
}
