/* SPDX-License-Identifier: Apache-2.0 */
/* Prints its pid, an instruction of a function of its own, and its stack and
 * frame pointers there; then waits in it until its input ends. */
#include <stdio.h>
#include <unistd.h>

static __attribute__((noinline)) long here(void)
{
	char c;
	long n;

	printf("%d %lu %lu %lu\n", getpid(), (unsigned long)here + 1, (unsigned long)__builtin_frame_address(0) - 128,
	       (unsigned long)__builtin_frame_address(0));
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
