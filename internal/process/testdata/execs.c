/* SPDX-License-Identifier: Apache-2.0 */
/* A process that begins the same program again and again, under two names in turn. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char *one[] = {"one", "1", NULL}, *two[] = {"two", "2", NULL};

	if (argc == 1) {
		puts("ready");
		fflush(stdout);
	}
	prctl(PR_SET_NAME, argv[0]);
	usleep(300);
	return execv("/proc/self/exe", strcmp(argv[0], "one") ? one : two);
}
