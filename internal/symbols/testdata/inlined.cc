// SPDX-License-Identifier: Apache-2.0
// Prints an address of a function that is inlined into others, then waits for the end of its standard input.
#include <cstdio>
#include <unistd.h>

static volatile unsigned long sink;

namespace outer
{
struct Thing {
	template <typename T> [[gnu::always_inline]] inline unsigned long leaf(T n)
	{
		unsigned long pc;
		__asm__ volatile("call 1f\n1: pop %0" : "=r"(pc)); // leaf is here
		sink = sink + n;
		return pc;
	}
	__attribute__((noinline)) unsigned long method(int n);
};

unsigned long Thing::method(int n)
{
	unsigned long pc = leaf<int>(n); // method calls leaf
	sink = sink + 3;
	return pc;
}
} // namespace outer

int main()
{
	char c;

	std::printf("inlined %lx\n", outer::Thing().method(2));
	std::fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
}
