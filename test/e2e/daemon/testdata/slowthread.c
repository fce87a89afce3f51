// SPDX-License-Identifier: Apache-2.0
/*
 * A thread that was slow, and says so. Prints its id, as it knows it, and the snapshot's; ends when its
 * input does.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tailcam.h"

static void *slow(void *socket)
{
	const struct tailcam_trigger_options options = {600 * 1000000ull, 20 * 1000000ull};
	const struct timespec nap = {0, 300 * 1000000};
	char id[64] = "", error[300] = "";

	prctl(PR_SET_NAME, "slow-c");
	nanosleep(&nap, NULL);
	if (tailcam_trigger_with(socket, "slow request", &options, id, sizeof(id), error, sizeof(error)))
		fprintf(stderr, "%s\n", error);
	printf("%ld %s\n", syscall(SYS_gettid), id);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	return argc != 2 || pthread_create(&thread, NULL, slow, argv[1]) || pthread_join(thread, NULL);
}
