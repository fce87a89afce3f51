/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that ask a server which is a real program, or one that something else keeps. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)

static int connect_to_server(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!argument || strlen(argument) >= sizeof(at.sun_path))
		die("this scenario wants the path of a socket");
	strcpy(at.sun_path, argument);
	need(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect to a server");
	return fd;
}

static void say(int fd, const char *text)
{
	need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "ask a server");
}

/* -------------------------------------------------------------------- Redis */

static void run_script(void)
{
	static const char script[] = "local n = 0 for i = 1, 6000000 do n = n + i % 7 end return n";
	char request[256], answer[64];
	int fd = connect_to_server();

	name_thread("scn-client");
	pin_thread(other);
	snprintf(request, sizeof(request), "*3\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n0\r\n", strlen(script), script);
	usleep(5000);
	say(fd, request);
	need(read(fd, answer, sizeof(answer)) > 0 && answer[0] == ':', "run a script");
	for (;;)
		pause();
}

/* The server has one thread, which runs the script of another client. */
static void redis_script(void)
{
	int fd = connect_to_server();
	char answer[64];

	say(fd, "PING\r\n");
	need(read(fd, answer, sizeof(answer)) > 0, "read an answer");
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_script();
	}
	usleep(10000);
	become_victim();
	say(fd, "PING\r\n");
	need(read(fd, answer, sizeof(answer)) > 0 && answer[0] == '+', "read an answer");
	done();
}

/* -------------------------------------------------------------------- nginx */

/* The server's one process reads what it has to send from a slow disk. */
static void nginx_disk(void)
{
	int fd = connect_to_server();
	char answer[8192];

	become_victim();
	say(fd, "GET /page HTTP/1.0\r\n\r\n");
	need(read(fd, answer, sizeof(answer)) > 0 && strncmp(answer + 9, "200", 3) == 0, "get a page");
	done();
}

/* ---------------------------------------------------- a server with processes */

static void ask_for(int busy)
{
	int fd = connect_to_server();
	char answer[16], request[16];

	snprintf(request, sizeof(request), "%d", busy);
	say(fd, request);
	need(read(fd, answer, sizeof(answer)) > 0, "read an answer");
	for (;;)
		pause();
}

/* Others keep the workers, or the only one whose queue the victim is in. */
static void ask_workers(int others)
{
	char answer[16] = "";
	int fd;

	for (int i = 0; i < others; i++) {
		pid_t pid = fork();

		need(pid >= 0, "fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			name_thread("scn-client");
			pin_thread(other);
			ask_for(40);
		}
	}
	usleep(5000);
	fd = connect_to_server();
	become_victim();
	say(fd, "5");
	need(read(fd, answer, sizeof(answer) - 1) > 0, "read an answer");
	done();
	truth.culprit = atoi(answer);
}

static void prefork(void)
{
	ask_workers(2);
}

static void prefork_idle(void)
{
	ask_workers(1);
}

/* --------------------------------------------------------------------- FUSE */

/* A file whose file system is another program. */
static void fuse_read(void)
{
	int fd = open(argument, O_RDONLY | O_CLOEXEC);
	static char buf[4096];

	need(fd >= 0, argument);
	become_victim();
	need(pread(fd, buf, sizeof(buf), 128 * MIB) == sizeof(buf), "read");
	done();
}

/* --------------------------------------------------------- a server that is stopped */

static void serve(int fd)
{
	char c;

	name_thread("scn-server");
	pin_thread(other);
	while (read(fd, &c, 1) == 1)
		say(fd, "x");
	_exit(0);
}

static void stop_for_a_while(pid_t pid, volatile bool *stopped)
{
	name_thread("scn-stopper");
	pin_thread(other);
	kill(pid, SIGSTOP);
	*stopped = true;
	sleep_until(now() + LONG);
	kill(pid, SIGCONT);
	for (;;)
		pause();
}

/* The victim's server is stopped by somebody else. */
static void stopped_server(void)
{
	volatile bool *stopped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int pair[2];
	char c;

	need(stopped != MAP_FAILED, "shared memory");
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "make a pair of sockets");
	truth.culprit = fork();
	need(truth.culprit >= 0, "fork");
	if (truth.culprit == 0) {
		close(pair[0]);
		serve(pair[1]);
	}
	close(pair[1]);
	say(pair[0], "x");
	need(read(pair[0], &c, 1) == 1, "read an answer");
	truth.root = fork();
	need(truth.root >= 0, "fork");
	if (truth.root == 0)
		stop_for_a_while(truth.culprit, stopped);
	while (!*stopped)
		usleep(200);
	become_victim();
	say(pair[0], "x");
	need(read(pair[0], &c, 1) == 1, "read an answer");
	done();
	kill(truth.root, SIGKILL);
	waitpid(truth.root, NULL, 0);
	close(pair[0]);
	waitpid(truth.culprit, NULL, 0);
}

const struct scenario service_scenarios[] = {
	{"redis-script", redis_script},
	{"nginx-disk", nginx_disk},
	{"prefork", prefork},
	{"prefork-idle", prefork_idle},
	{"fuse-read", fuse_read},
	{"stop-server", stopped_server},
	{NULL, NULL},
};
