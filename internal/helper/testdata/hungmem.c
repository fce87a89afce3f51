/* SPDX-License-Identifier: Apache-2.0 */
/* hungmem FILE: has its stack frames, as far as its frame pointer tells, and its
 * command line in memory that is FILE. Prints what deep.c does. */
#include <alloca.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Never returns: what called it may be gone. */
static __attribute__((noinline)) void hide(const char *path, uintptr_t args)
{
	int fd = open(path, O_RDONLY);
	char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 4096 * 40), c;

	if (p == MAP_FAILED)
		_exit(1);
	printf("%d %lu %lu %lu\n", getpid(), (unsigned long)hide, (unsigned long)p, (unsigned long)p + 64);
	/* Over its own arguments: from here on it has none of its own. */
	if (mmap((void *)args, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 4096 * 80) == MAP_FAILED)
		_exit(1);
	fflush(stdout);
	_exit(read(0, &c, 1) < 0);
}

int main(int argc, char **argv)
{
	/* The stack begins right below the arguments, often in their page: go two pages further down. */
	char *gap = alloca(8192);

	__asm__ volatile("" ::"r"(gap) : "memory");
	hide(argv[argc - 1], (uintptr_t)argv[0] & ~4095UL);
}
