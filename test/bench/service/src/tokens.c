/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives each request of a server a token, without a change to the server: what it receives on a
 * connection begins a request, what it sends there, or receives next, ends it. Loaded by LD_PRELOAD.
 * Each process has one thread that serves connections.
 *
 *	TOKENS_SOCKET	of the daemon; without, or if it refuses, the program ends
 *	TOKENS_LIVE	how many other tokens are live meanwhile
 */
#define _GNU_SOURCE
#include "tailcam.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <sys/uio.h>

static struct tailcam *h;

/* By descriptor. */
enum { DESCRIPTORS = 4096 };
static bool connection[DESCRIPTORS];
static uint64_t request[DESCRIPTORS]; /* its token; 0: it waits for one */

#define REAL(name, ...)                                             \
	({                                                          \
		static __typeof__(name) *real_;                     \
		if (!real_)                                         \
			*(void **)&real_ = dlsym(RTLD_NEXT, #name); \
		real_(__VA_ARGS__);                                 \
	})

__attribute__((constructor)) static void start(void)
{
	const char *socket = getenv("TOKENS_SOCKET"), *live = getenv("TOKENS_LIVE");
	struct tailcam_options options = {0, 0, 1};
	unsigned more = live ? (unsigned)atoi(live) : 0;
	char error[256] = "TOKENS_SOCKET is not set";

	options.tokens = more + 1024;
	if (socket)
		h = tailcam_open(socket, &options, error, sizeof(error));
	if (!h) {
		fprintf(stderr, "tokens: %s\n", error);
		_exit(1);
	}
	while (more--)
		tailcam_token(h, "idle");
}

static bool serves(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS && connection[fd];
}

static void connects(int fd, bool yes)
{
	if (fd < 0 || fd >= DESCRIPTORS)
		return;
	if (request[fd])
		tailcam_end_token(h, request[fd], NULL);
	request[fd] = 0;
	connection[fd] = yes;
}

static ssize_t received(int fd, ssize_t got)
{
	if (got > 0 && serves(fd)) {
		connects(fd, true);
		request[fd] = tailcam_token(h, "request");
		tailcam_switch(h, request[fd]);
	}
	return got;
}

static void sends(int fd)
{
	if (serves(fd) && request[fd])
		tailcam_switch(h, request[fd]); /* it may have received others since */
}

static ssize_t sent(int fd, ssize_t n)
{
	int error = errno;

	if (serves(fd) && request[fd])
		connects(fd, true);
	errno = error;
	return n;
}

int accept(int fd, struct sockaddr *address, socklen_t *len)
{
	int got = REAL(accept, fd, address, len);

	connects(got, true);
	return got;
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	int got = REAL(accept4, fd, address, len, flags);

	connects(got, true);
	return got;
}

static int both(int failed, const int fds[2])
{
	if (!failed) {
		connects(fds[0], true);
		connects(fds[1], true);
	}
	return failed;
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
	return both(REAL(socketpair, domain, type, protocol, fds), fds);
}

int pipe(int fds[2])
{
	return both(REAL(pipe, fds), fds);
}

int close(int fd)
{
	connects(fd, false);
	return REAL(close, fd);
}

ssize_t read(int fd, void *to, size_t size)
{
	return received(fd, REAL(read, fd, to, size));
}

ssize_t __read_chk(int fd, void *to, size_t size, size_t room)
{
	return size > room ? -1 : read(fd, to, size);
}

ssize_t recv(int fd, void *to, size_t size, int flags)
{
	return received(fd, REAL(recv, fd, to, size, flags));
}

ssize_t write(int fd, const void *from, size_t size)
{
	sends(fd);
	return sent(fd, REAL(write, fd, from, size));
}

ssize_t send(int fd, const void *from, size_t size, int flags)
{
	sends(fd);
	return sent(fd, REAL(send, fd, from, size, flags));
}

ssize_t writev(int fd, const struct iovec *from, int n)
{
	sends(fd);
	return sent(fd, REAL(writev, fd, from, n));
}
