/* SPDX-License-Identifier: Apache-2.0 */
/* Victims of PostgreSQL, by its own protocol. */
#define _GNU_SOURCE
#include "scenario.h"

#include <arpa/inet.h>
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

/* Sends one message of PostgreSQL's protocol; the first one of all has no type. */
static void pg_send(int fd, char type, const void *body, size_t size)
{
	char buf[512];
	size_t at = 0;
	uint32_t length = htonl((uint32_t)size + 4);

	if (type)
		buf[at++] = type;
	memcpy(buf + at, &length, 4);
	memcpy(buf + at + 4, body, size);
	at += 4 + size;
	need(write(fd, buf, at) == (ssize_t)at, "send to PostgreSQL");
}

static void pg_read(int fd, void *buf, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = read(fd, (char *)buf + at, size - at);

		need(n > 0, "read from PostgreSQL");
		at += (size_t)n;
	}
}

static char answer[64];

/* Reads messages until the server is ready for more; returns its process, if it said so. */
static pid_t pg_until_ready(int fd)
{
	char head[5], body[4096];
	uint32_t length, pid = 0;

	do {
		pg_read(fd, head, sizeof(head));
		memcpy(&length, head + 1, 4);
		length = ntohl(length) - 4;
		if (length > sizeof(body))
			die("a long message of PostgreSQL");
		pg_read(fd, body, length);
		if (head[0] == 'E') {
			fprintf(stderr, "PostgreSQL: %.*s\n", (int)length, body);
			die("PostgreSQL refuses");
		}
		if (head[0] == 'K')
			memcpy(&pid, body, 4);
		if (head[0] == 'D') /* one column, as text */
			snprintf(answer, sizeof(answer), "%.*s", (int)length - 6, body + 6);
	} while (head[0] != 'Z');
	return (pid_t)ntohl(pid);
}

static void pg_query(int fd, const char *sql)
{
	pg_send(fd, 'Q', sql, strlen(sql) + 1);
	pg_until_ready(fd);
}

/* A connection to a database, and its server's process. */
static int pg_connect_to(const char *database, pid_t *pid)
{
	char hello[64] = "\0\3\0\0user\0postgres\0database";
	size_t size = sizeof("\0\3\0\0user\0postgres\0database");
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!argument || strlen(argument) >= sizeof(at.sun_path))
		die("this scenario wants the path of PostgreSQL's socket");
	strcpy(at.sun_path, argument);
	need(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect to PostgreSQL");
	strcpy(hello + size, database);
	size += strlen(database) + 1;
	pg_send(fd, 0, hello, size + 1);
	*pid = pg_until_ready(fd);
	return fd;
}

static int pg_connect(pid_t *pid)
{
	return pg_connect_to("postgres", pid);
}

/* A commit waits for a server that waits for its log's disk. */
static void postgres(void)
{
	int fd = pg_connect(&truth.culprit);

	pg_query(fd, "create table if not exists scenario (n int)");
	pg_query(fd, "insert into scenario values (1)");
	become_victim();
	pg_query(fd, "insert into scenario values (2)");
	done();
	close(fd);
}

static uint64_t committing, committed;

static void commit_first(struct actor *actor)
{
	sleep_until(committing);
	pg_query(*(int *)actor->arg, "insert into logged values (1)");
	committed = now();
}

/* One server's process writes the log, the other waits for its lock: an LWLock, made of a semaphore. */
static void log_lock(void)
{
	pid_t victim, writer;
	int mine = pg_connect(&victim), its = pg_connect(&writer);
	struct actor first = {.comm = "scn-first", .cpu = other, .fifo = MIDDLE, .act = commit_first, .arg = &its};

	pg_query(mine, "create table if not exists logged (n int)");
	pg_query(mine, "insert into logged values (0)");
	pg_query(its, "insert into logged values (0)");
	committing = now() + 20 * MSEC;
	start(&first);
	sleep_until(committing + 3 * MSEC);
	truth.victim = victim;
	truth.culprit = writer;
	truth.start = now();
	pg_query(mine, "insert into logged values (2)");
	join(&first);
	truth.end = committed;
	if (committed < truth.start + 15 * MSEC)
		truth.spoilt = "the log was written before";
}

static volatile bool locked;
static uint64_t begin, released;

static void hold_row(struct actor *actor)
{
	pid_t pid;
	int fd = pg_connect(&pid);

	(void)actor;
	pg_query(fd, "begin; update accounts set n = 2");
	locked = true;
	while (!begin)
		usleep(200);
	sleep_until(begin + LONG);
	released = now();
	pg_query(fd, "rollback");
	close(fd);
}

/* Another client has changed the row, and takes its time before it ends its transaction. */
static void row_lock(void)
{
	struct actor holder = {.comm = "scn-holder", .cpu = other, .fifo = MIDDLE, .act = hold_row};
	int fd = pg_connect(&truth.culprit);

	pg_query(fd, "drop table if exists accounts");
	pg_query(fd, "create table accounts as select 1 as n");
	start(&holder);
	while (!locked)
		usleep(200);
	become_victim();
	begin = truth.start;
	pg_query(fd, "select n from accounts for update");
	done();
	join(&holder);
	close(fd);
	if (released < truth.start)
		truth.spoilt = "the row was free before";
}

static void ask_for_checkpoint(struct actor *actor)
{
	pg_query(*(int *)actor->arg, "checkpoint");
}

/* The server writes all that has changed to the disk from which the victim reads. */
static void checkpoint(void)
{
	const char *socket = argument, *dir = getenv("SCENARIO_FILES"), *inside = getenv("SCENARIO_TABLESPACE");
	char sql[512];
	pid_t pid;

	if (!dir || !inside)
		die("checkpoint wants SCENARIO_FILES and SCENARIO_TABLESPACE");
	int fd = pg_connect(&pid);
	struct actor asker = {.comm = "scn-asker", .cpu = other, .fifo = MIDDLE, .act = ask_for_checkpoint, .arg = &fd};

	snprintf(sql, sizeof(sql), "create tablespace scenario location '%s'", inside);
	pg_query(fd, sql);
	pg_query(fd, "create table much (t text) tablespace scenario");
	pg_query(fd, "alter table much alter t set storage plain");
	pg_query(fd, "insert into much select repeat('x', 4000) from generate_series(1, 3000)");
	pg_query(fd, "checkpoint");
	pg_query(fd, "update much set t = repeat('y', 4000)");
	pg_query(fd, "select pid from pg_stat_activity where backend_type = 'checkpointer'");
	truth.culprit = (pid_t)number(answer, 1, 1 << 22);
	argument = dir;
	int mine = direct_file("mine", 4096);
	start(&asker);
	read_behind(mine, 8);
	join(&asker);
	argument = socket;
	pg_query(fd, "drop table much");
	pg_query(fd, "drop tablespace scenario");
	close(fd);
}

/* A process of its own, on the other CPU; 0: it is this one. */
static pid_t fork_client(const char *comm)
{
	pid_t pid = fork();

	need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name_thread(comm);
		pin_thread(other);
	}
	return pid;
}

static pid_t other_client(const char *comm, const char *database, const char *sql, useconds_t every)
{
	pid_t pid = fork_client(comm), server;

	if (pid == 0) {
		for (int fd = pg_connect_to(database, &server);;) {
			pg_query(fd, sql);
			usleep(every);
		}
	}
	return pid;
}

/* The pool has one connection, which another client's query has; others have a pool of their own. */
static void pool(void)
{
	pid_t pid;
	int fd = pg_connect(&pid);

	pg_query(fd, "select 1");
	pid_t chatter = other_client("scn-chatter", "other", "select 2", 10000);
	usleep(100000);
	pid_t holder = other_client("scn-holder", "postgres", "select pg_sleep(0.06)", 1000000);
	usleep(20000);
	become_victim();
	pg_query(fd, "select 1");
	done();
	kill(chatter, SIGKILL);
	waitpid(chatter, NULL, 0);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	close(fd);
}

/* ------------------------------------------------- clients that take their time */

/* What the processes of a scenario tell each other. */
static struct stage {
	volatile int ready;
	volatile uint64_t begin, released;
} *stage;

static void set_stage(void)
{
	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(stage != MAP_FAILED, "shared memory");
}

static void await_stage(int ready)
{
	while (stage->ready < ready)
		usleep(200);
}

/* A client in a process of its own, which ends right away: so does its server's. */
static pid_t client(const char *comm, void (*act)(int fd))
{
	pid_t pid = fork_client(comm), server;

	if (pid == 0) {
		need(fifo_thread(MIDDLE) == 0, "become real-time");
		act(pg_connect(&server));
		_exit(0);
	}
	return pid;
}

/* The victim asks for something for which others have to end. */
static void ask_when_ready(int fd, int ready, const char *sql)
{
	await_stage(ready);
	usleep(20000); /* those wait by now */
	become_victim();
	stage->begin = truth.start;
	pg_query(fd, sql);
	done();
	close(fd);
	while (waitpid(-1, NULL, 0) > 0)
		;
	if (stage->released < truth.start + LONG / 2)
		truth.spoilt = "it was free before";
}

static void sleep_in_transaction(void)
{
	stage->ready++;
	while (!stage->begin)
		usleep(200);
	sleep_until(stage->begin + LONG);
	stage->released = now();
}

static void keep_first_row(int fd)
{
	pg_query(fd, "begin");
	pg_query(fd, "update two_rows set v = 1 where i = 1");
	sleep_in_transaction();
	pg_query(fd, "commit");
}

static void keep_second_row(int fd)
{
	await_stage(1);
	pg_query(fd, "begin; update two_rows set v = 2 where i = 2");
	stage->ready++;
	pg_query(fd, "update two_rows set v = 2 where i = 1; commit");
}

/* A client that has gone to sleep in its transaction keeps one whose row another one wants. */
static void row_chain(void)
{
	int fd = pg_connect(&truth.culprit);

	set_stage();
	pg_query(fd, "drop table if exists two_rows");
	pg_query(fd, "create table two_rows as select i, 0 as v from generate_series(1, 2) i");
	client("scn-idler", keep_first_row);
	client("scn-middle", keep_second_row);
	ask_when_ready(fd, 2, "update two_rows set v = 3 where i = 2");
}

static void load_slowly(int fd)
{
	static const char row[] = "1\n";

	pg_send(fd, 'Q', "copy loaded from stdin", sizeof("copy loaded from stdin"));
	char head[5], body[64];
	uint32_t length;

	pg_read(fd, head, sizeof(head));
	memcpy(&length, head + 1, 4);
	need(head[0] == 'G' && ntohl(length) - 4 <= sizeof(body), "begin to copy");
	pg_read(fd, body, ntohl(length) - 4);
	sleep_in_transaction();
	pg_send(fd, 'd', row, sizeof(row) - 1);
	pg_send(fd, 'c', "", 0);
	pg_until_ready(fd);
}

/* Another client copies rows into the table, and sends them late. */
static void slow_load(void)
{
	int fd = pg_connect(&truth.culprit);

	set_stage();
	pg_query(fd, "drop table if exists loaded");
	pg_query(fd, "create table loaded (n int)");
	client("scn-loader", load_slowly);
	ask_when_ready(fd, 1, "truncate loaded");
}

static void notify_late(int fd)
{
	stage->ready++;
	while (!stage->begin)
		usleep(200);
	spin_until(stage->begin + LONG);
	stage->released = now();
	pg_query(fd, "notify scenario, 'x'");
}

/* It listens for what another client computes. */
static void notified(void)
{
	char byte;
	int fd = pg_connect(&truth.culprit);

	set_stage();
	pg_query(fd, "listen scenario");
	client("scn-notifier", notify_late);
	await_stage(1);
	usleep(20000);
	become_victim();
	stage->begin = truth.start;
	pg_read(fd, &byte, 1);
	done();
	close(fd);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

const struct scenario postgres_scenarios[] = {
	{"pgbouncer", pool},	  {"postgres", postgres},     {"log-lock", log_lock},
	{"row-lock", row_lock},	  {"checkpoint", checkpoint}, {"row-chain", row_chain},
	{"slow-load", slow_load}, {"notified", notified},     {NULL, NULL},
};
