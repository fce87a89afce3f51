// SPDX-License-Identifier: Apache-2.0
/* Waits in vfork, in uninterruptible sleep, until it is killed. */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void)
{
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return 0;
}
