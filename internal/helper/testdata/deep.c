/* SPDX-License-Identifier: Apache-2.0 */
/* Prints its pid, an instruction of a function of its own, and its stack and
 * frame pointers there; then waits in it until its input ends. */
#include <stdio.h>
#include <unistd.h>

#if defined(__x86_64__)
#define WHERE "lea 1f(%%rip), %0\n mov %%rsp, %1\n mov %%rbp, %2\n 1:"
#else
#define WHERE "adr %0, 1f\n mov %1, sp\n mov %2, x29\n 1:"
#endif

static __attribute__((noinline)) long here(void)
{
	unsigned long ip, sp, fp;
	char c;
	long n;

	__asm__ volatile(WHERE : "=r"(ip), "=r"(sp), "=r"(fp));
	printf("%d %lu %lu %lu\n", getpid(), ip, sp, fp);
	fflush(stdout);
	n = read(0, &c, 1);
	__asm__ volatile("" ::: "memory");
	return n + 1;
}

static __attribute__((noinline)) long deep(int n)
{
	long r = n > 0 ? deep(n - 1) : here();

	__asm__ volatile("" ::: "memory");
	return r + 1;
}

int main(void)
{
	return deep(2) == 0;
}
