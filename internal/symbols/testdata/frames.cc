// SPDX-License-Identifier: Apache-2.0
// Prints addresses within its own functions, then waits for the end of its standard input.
#include <cstdio>
#include <unistd.h>

namespace outer
{
template <typename T> struct Box {
	__attribute__((noinline)) void method(const T &)
	{
		std::printf("method %lx\n", (unsigned long)&&here);
	here:
		__asm__ volatile("");
	}
};

__attribute__((noinline)) static void plain(int, const char *)
{
	std::printf("plain %lx\n", (unsigned long)&&here);
here:
	__asm__ volatile("");
}
} // namespace outer

int main()
{
	char c;

	outer::Box<int>().method(1);
	outer::plain(1, "");
	std::fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
}
