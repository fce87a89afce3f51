/* hungmem FILE: has its stack frames, as far as its frame pointer tells, and its
 * command line in memory that is FILE. Prints what deep.c does. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = open(argv[argc - 1], O_RDONLY);
	uintptr_t args = (uintptr_t)argv[0] & ~4095UL;
	char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 4096 * 40), c;

	if (p == MAP_FAILED)
		return 1;
	printf("%d %lu %lu %lu\n", getpid(), (unsigned long)main, (unsigned long)p, (unsigned long)p + 64);
	/* Over its own arguments: from here on it has none of its own. */
	if (mmap((void *)args, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 4096 * 80) == MAP_FAILED)
		return 1;
	fflush(stdout);
	return read(0, &c, 1) < 0;
}
