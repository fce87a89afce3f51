// SPDX-License-Identifier: Apache-2.0
/*
 * Processes whose outliers are expensive to name: each naps in code of its own
 * in anonymous memory, which its perf map names very often.
 *
 * usage: noisy COMM NAPS USEC LINES PROCESSES
 *
 * Prints "ready" once its map is written and its processes run, and at its end
 * how many naps its first process has made. Removes its maps if it ends by itself.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
static const unsigned char code[] = {
	0x55, 0x48, 0x89, 0xe5,	      /* push %rbp; mov %rsp,%rbp */
	0x4d, 0x31, 0xd2,	      /* xor %r10,%r10 */
	0x48, 0x89, 0xfa,	      /* mov %rdi,%rdx */
	0x31, 0xf6,		      /* xor %esi,%esi */
	0xbf, 0x01, 0x00, 0x00, 0x00, /* mov $CLOCK_MONOTONIC,%edi */
	0xb8, 0xe6, 0x00, 0x00, 0x00, /* mov $clock_nanosleep,%eax */
	0x0f, 0x05, 0x5d, 0xc3,	      /* syscall; pop %rbp; ret */
};
#elif defined(__aarch64__)
static const unsigned int code[] = {
	0xa9bf7bfd, 0x910003fd, /* stp x29,x30,[sp,#-16]!; mov x29,sp */
	0xaa0003e2, 0xd2800020, /* mov x2,x0; mov x0,#CLOCK_MONOTONIC */
	0xd2800001, 0xd2800003, /* mov x1,#0; mov x3,#0 */
	0xd2800e68, 0xd4000001, /* mov x8,#clock_nanosleep; svc #0 */
	0xa8c17bfd, 0xd65f03c0, /* ldp x29,x30,[sp],#16; ret */
};
#else
#error "no code for this architecture"
#endif

static char own[64];

static void map_path(char *path, pid_t pid)
{
	snprintf(path, 64, "/tmp/perf-%d.map", (int)pid);
}

static void write_map(long lines)
{
	FILE *f = fopen(own, "w");

	if (!f)
		exit(1);
	for (long i = 0; i < lines; i++)
		fprintf(f,
			"0 ffffffffffffffff a_symbol_of_code_that_is_made_while_it_runs_and_has_a_name_as_long_as_those_of_templates_are_"
			"which_expand_to_hundreds_of_characters_each_and_are_all_different_from_each_other_so_that_nothing_is_shared_%ld\n",
			i);
	if (fclose(f))
		exit(1);
}

int main(int argc, char **argv)
{
	long naps, usec, lines, processes, done = 0;
	long (*nap)(struct timespec *);
	struct timespec t;

	if (argc != 6)
		return 2;
	naps = atol(argv[2]);
	usec = atol(argv[3]);
	lines = atol(argv[4]);
	processes = atol(argv[5]);
	prctl(PR_SET_NAME, argv[1]);

	nap = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nap == MAP_FAILED)
		return 1;
	memcpy((void *)nap, code, sizeof(code));
	__builtin___clear_cache((char *)nap, (char *)nap + sizeof(code));

	map_path(own, getpid());
	if (lines > 0)
		write_map(lines);
	for (long i = 1; i < processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			char path[64];

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			map_path(path, getpid());
			if (lines > 0 && link(own, path))
				_exit(1);
			for (;;) {
				t = (struct timespec){usec / 1000000, usec % 1000000 * 1000};
				nap(&t);
			}
		}
	}
	printf("ready\n");
	fflush(stdout);
	for (; done < naps; done++) {
		t = (struct timespec){usec / 1000000, usec % 1000000 * 1000};
		nap(&t);
	}
	printf("%ld\n", done);
	if (lines > 0)
		unlink(own);
	return 0;
}
