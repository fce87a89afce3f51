/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells tailcam where a piece of a program's work begins and ends, so that
 * rules of `track: span` can find those that take too long. Copy this file; it
 * needs no library. x86-64 and arm64; elsewhere the calls do nothing.
 *
 *	tailcam_begin("checkout-42");
 *	...
 *	tailcam_end("checkout-42");
 *
 * Each is one system call that the kernel refuses at once, which tailcam sees if
 * it runs, and nobody otherwise; errno stays. A key is text of 1 to 63 bytes;
 * others are counted, and ignored. It belongs to the user and the pid namespace
 * of the caller: nobody else can begin, end or meet it. Any thread or process of
 * the same two may end what another began. A second begin before the end
 * restarts the time. Safe in threads, signal handlers and after fork.
 *
 * A seccomp filter must let faccessat2 pass: a filter that kills for it kills.
 */
#ifndef TAILCAM_SPAN_H
#define TAILCAM_SPAN_H

#define TAILCAM_KEY_LEN 64 /* with its NUL */

static inline void tailcam_say(const char *key, long what)
{
	/*
	 * A copy on the stack: the kernel side does not wait for memory that is
	 * not resident. One byte more, so that a key that is too long shows.
	 */
	char text[TAILCAM_KEY_LEN + 1];
	int n = 0;

	if (key)
		while (n < TAILCAM_KEY_LEN && key[n]) {
			text[n] = key[n];
			n++;
		}
	text[n] = 0;
#if defined(__x86_64__) && !defined(__ILP32__)
	{
		long ret = 439; /* faccessat2 */
		register long flags __asm__("r10") = 0;

		__asm__ volatile("syscall"
				 : "+a"(ret)
				 : "D"(-1L), "S"(text), "d"(what), "r"(flags)
				 : "rcx", "r11", "memory");
		(void)ret;
	}
#elif defined(__aarch64__) && !defined(__ILP32__)
	{
		register long nr __asm__("x8") = 439;
		register long dir __asm__("x0") = -1;
		register long path __asm__("x1") = (long)text;
		register long mode __asm__("x2") = what;
		register long flags __asm__("x3") = 0;

		__asm__ volatile("svc 0" : "+r"(dir) : "r"(nr), "r"(path), "r"(mode), "r"(flags) : "memory");
	}
#else
	(void)what;
	(void)text;
#endif
}

/* The work with this key begins now. */
static inline void tailcam_begin(const char *key)
{
	tailcam_say(key, 0x74630001);
}

/* The work with this key has ended. */
static inline void tailcam_end(const char *key)
{
	tailcam_say(key, 0x74630002);
}

#endif
