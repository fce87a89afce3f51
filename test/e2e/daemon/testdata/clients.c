// SPDX-License-Identifier: Apache-2.0
/*
 * Opens many connections to a socket, of each slow kind, and keeps the first and
 * the latest ones.
 *
 * usage: clients SOCKET CONNECTIONS
 *
 * Prints how often it has connected; ends with its standard input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST 400 /* connections that are kept, and */
#define LATEST 400

static const char *const kinds[] = {
	"",
	"GET /v1/status HT",
	"POST /v1/snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
	"POST /v1/pause HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
	"GET /v1/rules HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
	"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET /v1/histograms HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/histograms HTTP/1.1\r\nHost: x\r\n\r\n",
	"\1\377\1\377\r\n\r\n",
};

int main(int argc, char **argv)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	static int latest[LATEST];
	struct timeval patience = {.tv_sec = 5};
	struct rlimit files;
	long connected = 0;
	char c;

	if (argc != 3 || strlen(argv[1]) >= sizeof(a.sun_path))
		return 2;
	strcpy(a.sun_path, argv[1]);
	if (getrlimit(RLIMIT_NOFILE, &files))
		return 1;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files))
		return 1;
	for (long i = 0; i < atol(argv[2]); i++) {
		const char *send_this = kinds[i % (sizeof(kinds) / sizeof(*kinds))];
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		if (fd < 0)
			return 1;
		/* connect() waits for room in the backlog, for as long as this */
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
		if (!connect(fd, (struct sockaddr *)&a, sizeof(a))) {
			connected++;
			if (send(fd, send_this, strlen(send_this), MSG_NOSIGNAL) >= 0 && i % 17 == 0)
				shutdown(fd, SHUT_WR);
		}
		if (i < FIRST)
			continue;
		if (latest[i % LATEST])
			close(latest[i % LATEST]);
		latest[i % LATEST] = fd;
	}
	printf("%ld\n", connected);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
