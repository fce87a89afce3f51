/* SPDX-License-Identifier: Apache-2.0 */
/* A just-in-time compiler of one function: writes it into fresh memory and its
 * name into /tmp/perf-PID.map, calls it, prints where it is, and waits for the
 * end of its standard input. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
#if defined(__x86_64__)
	static const unsigned char code[] = {0xb8, 7, 0, 0, 0, 0xc3}; /* return 7 */
#elif defined(__aarch64__)
	static const unsigned char code[] = {0xe0, 0, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6};
#endif
	unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64], c;
	FILE *map;

	if (p == MAP_FAILED)
		return 1;
	memcpy(p + 64, code, sizeof(code));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	if (!map)
		return 2;
	fprintf(map, "%lx %lx LazyCompile:*seven script.js:3\n", (unsigned long)(p + 64), sizeof(code));
	fclose(map);
	if (((int (*)(void))(p + 64))() != 7)
		return 3;
	printf("jit %lx\n", (unsigned long)(p + 64));
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	unlink(path);
	return 0;
}
