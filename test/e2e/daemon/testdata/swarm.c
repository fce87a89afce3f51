// SPDX-License-Identifier: Apache-2.0
/*
 * More of something than a machine usually has, as fast as it can.
 *
 * usage: swarm calls N             N system calls read, of 256 KiB each: some microseconds
 *        swarm forks N EVERY USEC  N processes, at most 32 at once; each EVERYth naps
 *
 * Prints how many calls or naps there were, and how many nanoseconds all took.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long forks(long n, long every, long usec)
{
	struct timespec nap = {usec / 1000000, usec % 1000000 * 1000};
	long naps = 0;
	int alive = 0;

	for (long i = 0; i < n; i++) {
		int naps_now = i % every == 0;
		pid_t pid = fork();

		if (pid == 0) {
			if (naps_now)
				clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
			_exit(0);
		}
		if (pid > 0) {
			naps += naps_now;
			alive++;
		} else if (alive == 0) {
			exit(1);
		} else {
			i--; /* again, once another one has ended */
		}
		if (pid < 0 || alive >= 32) {
			wait(NULL);
			alive--;
		}
	}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	return naps;
}

static void calls(long n)
{
	static char buf[256 << 10];
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	for (long i = 0; i < n; i++)
		if (read(fd, buf, sizeof(buf)) != sizeof(buf))
			exit(1);
}

int main(int argc, char **argv)
{
	long long start;
	long n;

	if (argc < 3)
		return 2;
	n = atol(argv[2]);
	start = now();
	if (!strcmp(argv[1], "calls")) {
		calls(n);
	} else if (!strcmp(argv[1], "forks") && argc == 5) {
		n = forks(n, atol(argv[3]), atol(argv[4]));
	} else {
		return 2;
	}
	printf("%ld %lld\n", n, now() - start);
	return 0;
}
