/* SPDX-License-Identifier: Apache-2.0 */
/* Victims whose server waits for somebody else, and serves others meanwhile. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE 3000 /* us between what others ask */

static struct sockaddr_un address(const char *suffix)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	if (!argument ||
	    snprintf(at.sun_path, sizeof(at.sun_path), "%s%s", argument, suffix) >= (int)sizeof(at.sun_path))
		die("this scenario wants the path of a socket");
	return at;
}

static int dial(void)
{
	struct sockaddr_un at = address("");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect to a server");
	return fd;
}

static void ask(int fd, const char *text)
{
	char answer[4096];

	need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "ask a server");
	need(read(fd, answer, sizeof(answer)) > 0, "read an answer");
}

/* A process of its own: who is in one with the victim may be its own server. */
static pid_t process(const char *comm, void (*act)(void))
{
	pid_t pid = fork();

	need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name_thread(comm);
		pin_thread(other);
		act();
		for (;;)
			pause();
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ------------------------------------------------------- when it happens */

/* When the wait began, which ends LONG after: told to the processes that are made after this. */
static volatile uint64_t *begun;

static void share_begin(void)
{
	begun = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(begun != MAP_FAILED, "shared memory");
}

/* Around the end of the wait others ask nothing: for which of two at once a server goes on is not recorded. */
static bool others_turn(void)
{
	uint64_t end = begun && *begun ? *begun + LONG : 0;

	return now() + 2 * MSEC > end && now() < end + 2 * MSEC;
}

/* ------------------------------------------------------- a proxy and its backend */

static int listener;

static void serve_late(void)
{
	static const char page[] = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx";
	char request[4096];

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		need(fd >= 0 && read(fd, request, sizeof(request)) > 0, "read a request");
		sleep_until(now() + LONG);
		need(write(fd, page, sizeof(page) - 1) == sizeof(page) - 1, "answer");
		close(fd);
	}
}

static void serve_never(void)
{
	char request[4096];

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		need(fd >= 0 && read(fd, request, sizeof(request)) > 0, "read a request");
		sleep_until(now() + 2 * LONG);
		close(fd);
	}
}

static void fetch_fast(void)
{
	for (;; usleep(PAUSE)) {
		if (others_turn())
			continue;
		int fd = dial();

		ask(fd, "GET /fast HTTP/1.0\r\n\r\n");
		close(fd);
	}
}

static void rest(void)
{
}

/* The backend takes its time; meanwhile the proxy may serve others by itself. */
static void proxy(void (*serve)(void), void (*meanwhile)(void))
{
	struct sockaddr_un at = address("b");

	unlink(at.sun_path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	need(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 8) == 0,
	     "listen");
	share_begin();
	process("scn-backend", serve);
	pid_t chatter = process("scn-chatter", meanwhile);
	int fd = dial();

	usleep(20000);
	become_victim();
	*begun = truth.start;
	ask(fd, "GET /slow HTTP/1.0\r\n\r\n");
	done();
	end(chatter);
}

static void proxied(void)
{
	proxy(serve_late, fetch_fast);
}

/* Nobody else is served: of threads that take turns, it is not always told then. */
static void proxied_alone(void)
{
	proxy(serve_late, rest);
}

/* The proxy waits no longer than it is allowed to. */
static void mute(void)
{
	proxy(serve_never, rest);
}

/* ------------------------------------------------------- a server whose thread waits for a lock of a file */

static int lockfile;
static int locked[2];

static void hold_file(void)
{
	need(flock(lockfile, LOCK_EX) == 0 && write(locked[1], "x", 1) == 1, "lock a file");
	while (!*begun)
		usleep(200);
	sleep_until(*begun + LONG);
	need(flock(lockfile, LOCK_UN) == 0, "unlock a file");
}

static void file_locked(void)
{
	struct sockaddr_un at = address("l");
	char c;

	share_begin();
	lockfile = open(at.sun_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	need(lockfile >= 0 && pipe(locked) == 0, "a file and a pipe");
	process("scn-holder", hold_file);
	need(read(locked[0], &c, 1) == 1, "wait for the holder");
	int fd = dial();

	usleep(20000);
	become_victim();
	*begun = truth.start;
	ask(fd, "GET /locked HTTP/1.0\r\n\r\n");
	done();
}

/* ------------------------------------------------------- a queue in Redis */

static void ping(void)
{
	int fd = dial();

	for (;;) {
		if (!others_turn())
			ask(fd, "PING\r\n");
		usleep(PAUSE);
	}
}

static void push(void)
{
	int fd = dial();

	ask(fd, "PING\r\n");
	while (!*begun)
		usleep(200);
	sleep_until(*begun + LONG);
	ask(fd, "RPUSH scenario x\r\n");
}

/* The victim waits for what another one will push. */
static void pop(void)
{
	share_begin();
	process("scn-pusher", push);
	pid_t chatter = process("scn-chatter", ping);
	int fd = dial();

	usleep(20000);
	become_victim();
	*begun = truth.start;
	ask(fd, "BLPOP scenario 0\r\n");
	done();
	end(chatter);
}

/* Nobody answers, and the server does when the time is over that the victim has set: as it has
 * something else to do. */
static void wait_in_vain(void)
{
	char request[32];
	pid_t chatter = process("scn-chatter", ping);
	int fd = dial();

	ask(fd, "SET scenario x\r\n");
	snprintf(request, sizeof(request), "WAIT 1 %llu\r\n", LONG / MSEC);
	usleep(20000);
	become_victim();
	ask(fd, request);
	done();
	end(chatter);
}

/* ------------------------------------------------------- a limit of requests */

/* The server lets it wait, and serves others meanwhile. */
static void limited(void)
{
	share_begin();
	pid_t chatter = process("scn-chatter", fetch_fast);
	int fd = dial();

	ask(fd, "GET /limited HTTP/1.0\r\n\r\n");
	*begun = now();
	close(fd);
	fd = dial();
	usleep(5000);
	become_victim();
	ask(fd, "GET /limited HTTP/1.0\r\n\r\n");
	done();
	end(chatter);
}

const struct scenario served_scenarios[] = {
	{"nginx-proxy", proxied},     {"asyncio", proxied},	{"redis-pop", pop},
	{"redis-wait", wait_in_vain}, {"nginx-limit", limited}, {"go-proxy", proxied_alone},
	{"go-lock", file_locked},     {"nginx-mute", mute},	{NULL, NULL},
};
