/* SPDX-License-Identifier: Apache-2.0 */
/* A process whose first thread ends, while another one goes on. It writes that one's id. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *stay(void *unused)
{
	printf("%ld\n", syscall(SYS_gettid));
	fflush(stdout);
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, stay, NULL))
		return 1;
	pthread_exit(NULL);
}
