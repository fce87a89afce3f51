/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the name and an inner address of its own functions, then waits for
 * the end of its standard input. */
#include <stdio.h>
#include <unistd.h>
#include <time.h>

/* The address that the caller goes on at. */
__attribute__((noinline)) static void report(const char *name)
{
	printf("%s %lx\n", name, (unsigned long)__builtin_return_address(0));
}

__attribute__((noinline)) static void local_function(void)
{
	report("local_function");
	__asm__ volatile("");
}

__attribute__((noinline, visibility("default"))) void exported_function(void)
{
	report("exported_function");
	local_function();
	__asm__ volatile("");
}

/* Ends with a call that does not return: the return address is in the next function. */
__attribute__((noinline, noreturn)) static void stop(void)
{
	char c;

	printf("noreturn %lx\n", (unsigned long)__builtin_return_address(0));
	printf("libc %lx\n", (unsigned long)&clock_gettime);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	_exit(0);
}

__attribute__((noinline)) static void calls_stop(void)
{
	stop();
}

int main(void)
{
	exported_function();
	calls_stop();
}
