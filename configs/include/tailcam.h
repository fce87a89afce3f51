/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mark the spans of a program for rules of `track: span`. Copy this file; it needs no library.
 * x86-64 and arm64; elsewhere the calls do nothing.
 *
 *	tailcam_begin("checkout-42");
 *	...
 *	tailcam_end("checkout-42");
 *
 * Each call is one system call that fails immediately, without changing errno; tailcam observes it
 * if it is running. A key is 1 to 63 bytes of text; invalid keys are counted and ignored. Keys are
 * private to the user and pid namespace of the caller; any thread or process with the same user and
 * pid namespace may end a span. Beginning a span again restarts it. Safe in threads, in signal
 * handlers and after fork.
 *
 * A seccomp filter must allow faccessat2.
 */
#ifndef TAILCAM_SPAN_H
#define TAILCAM_SPAN_H

#define TAILCAM_KEY_LEN 64 /* with its NUL */

static inline void tailcam_mark(const char *key, long what)
{
	/*
	 * Copy the key to the stack, as the kernel side cannot fault pages in. One byte more, so that
	 * a key that is too long is detected.
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

/* Begin the span with this key. */
static inline void tailcam_begin(const char *key)
{
	tailcam_mark(key, 0x74630001);
}

/* End the span with this key. */
static inline void tailcam_end(const char *key)
{
	tailcam_mark(key, 0x74630002);
}

#endif
