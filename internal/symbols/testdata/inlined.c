/* SPDX-License-Identifier: Apache-2.0 */
/* Prints an address of a function that is inlined into others, and where it
 * is in the source, then waits for the end of its standard input. */
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long sink;

#define HERE                                                       \
	({                                                         \
		unsigned long pc;                                  \
		__asm__ volatile("call 1f\n1: pop %0" : "=r"(pc)); \
		pc;                                                \
	})

__attribute__((always_inline)) static inline unsigned long leaf(void)
{
	unsigned long pc = HERE; /* leaf is here */

	sink++;
	return pc;
}

__attribute__((always_inline)) static inline unsigned long middle(void)
{
	sink += 3;
	return leaf(); /* middle calls leaf */
}

__attribute__((noinline)) unsigned long outer(void)
{
	unsigned long pc = middle(); /* outer calls middle */

	sink += 5;
	return pc;
}

int main(void)
{
	char c;

	printf("inlined %lx\n", outer());
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
}
