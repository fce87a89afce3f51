/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls a chain of functions that need registers and stack of their own, without
 * frame pointers. The innermost one prints its pid and waits for input; main
 * waits for more.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int sink;

#define LINK(name, next, size)                                                      \
	__attribute__((noinline)) long name(long a, long b, long c, long d, long e) \
	{                                                                           \
		char room[size];                                                    \
		long r;                                                             \
                                                                                    \
		memset(room, (int)a, sizeof(room));                                 \
		sink = room[b & 7];                                                 \
		r = next(a + 1, b ^ c, c * d, d - e, e + room[3]);                  \
		__asm__ volatile("" ::"r"(room) : "memory");                        \
		return r + a * b - c + d * e;                                       \
	}

__attribute__((noinline)) long link_innermost(long a, long b, long c, long d, long e)
{
	char byte;

	printf("%d\n", getpid());
	fflush(stdout);
	return read(0, &byte, 1) + a + b + c + d + e;
}

LINK(link_three, link_innermost, 24)
LINK(link_two, link_three, 300)

/* Its frame has a size that only the frame pointer knows. */
__attribute__((noinline)) long link_alloca(long a, long b, long c, long d, long e)
{
	char *room = __builtin_alloca((unsigned long)a * 64 + 8);
	long r;

	memset(room, 1, (unsigned long)a * 64 + 8);
	__asm__ volatile("" ::"r"(room) : "memory");
	r = link_two(a, b, c, d, e);
	__asm__ volatile("" ::"r"(room) : "memory");
	return r + a + b * c - d * e;
}

/* It aligns its frame, so that the caller's is found by an expression. */
__attribute__((noinline)) long link_aligned(long a, long b, long c, long d, long e)
{
	char room[128] __attribute__((aligned(64)));
	long r;

	memset(room, (int)a, sizeof(room));
	__asm__ volatile("" ::"r"(room) : "memory");
	r = link_alloca(a, b, c, d, e);
	__asm__ volatile("" ::"r"(room) : "memory");
	return r + a + b * c - d * e;
}

LINK(link_one, link_aligned, 2000)

int main(int argc, char **argv)
{
	long r = link_one(argc, 2, 3, 4, 5);
	char byte;

	(void)argv;
	return (int)(r + read(0, &byte, 1)) & 1;
}
