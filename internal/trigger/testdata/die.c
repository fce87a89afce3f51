/* SPDX-License-Identifier: Apache-2.0 */
/* Ends in the way that its argument names. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile int *nowhere = (int *)0x10;

static void caught(int sig)
{
	(void)sig;
	_exit(3);
}

static void passed_on(int sig)
{
	(void)sig; /* SA_RESETHAND: the access is repeated, without a handler */
}

static void *fault(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, "faulty");
	*nowhere = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct sigaction act = {.sa_handler = caught};
	pthread_t other;

	if (!strcmp(how, "undumpable"))
		prctl(PR_SET_DUMPABLE, 0);
	if (!strcmp(how, "abort") || !strcmp(how, "undumpable"))
		abort();
	if (!strcmp(how, "caught"))
		sigaction(SIGSEGV, &act, NULL);
	if (!strcmp(how, "passed-on")) {
		act.sa_handler = passed_on;
		act.sa_flags = SA_RESETHAND;
		sigaction(SIGSEGV, &act, NULL);
	}
	if (!strcmp(how, "ignored")) {
		signal(SIGQUIT, SIG_IGN);
		raise(SIGQUIT);
		return 0;
	}
	if (!strcmp(how, "killed"))
		for (;;)
			pause();
	if (!strcmp(how, "thread")) {
		pthread_create(&other, NULL, fault, NULL);
		pthread_join(other, NULL);
	}
	*nowhere = 1;
	return 0;
}
