/* SPDX-License-Identifier: Apache-2.0 */
/* Naps 30 ms for each byte of its standard input, in a function that is inlined,
 * and writes it. */
#include <time.h>
#include <unistd.h>

static volatile long sum;

__attribute__((always_inline)) static inline void nap(void)
{
	struct timespec t = {0, 30000000};
#if defined(__x86_64__)
	long ret;
	register long arg4 __asm__("r10") = 0;

	__asm__ volatile("syscall\nnop\nnop" /* nap is here */
			 : "=a"(ret)
			 : "0"(230L), "D"((long)CLOCK_MONOTONIC), "S"(0L), "d"(&t), "r"(arg4)
			 : "rcx", "r11", "memory");
#else
	register long nr __asm__("x8") = 115, ret __asm__("x0") = CLOCK_MONOTONIC, a1 __asm__("x1") = 0,
			 a3 __asm__("x3") = 0;
	register struct timespec *a2 __asm__("x2") = &t;

	__asm__ volatile("svc #0\nnop\nnop" : "+r"(ret) : "r"(nr), "r"(a1), "r"(a2), "r"(a3) : "memory");
#endif
	sum += ret;
}

__attribute__((noinline)) static void work(void)
{
	nap(); /* work calls nap */
	sum++;
}

int main(void)
{
	char c;

	while (read(0, &c, 1) > 0) {
		work();
		if (write(1, &c, 1) != 1)
			return 1;
	}
	return 0;
}
