/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps for so many microseconds, again and again: what runs in containers of tests. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long us = argc > 1 ? atol(argv[1]) : 0;
	struct timespec length = {us / 1000000, us % 1000000 * 1000};

	signal(SIGTERM, _exit); /* the first process of a container ignores it otherwise */
	while (us)
		nanosleep(&length, NULL);
	for (;;)
		pause();
}
