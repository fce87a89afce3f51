/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that a limit holds up: of a cgroup, of the disk's writeback, of real-time tasks. */
#define _GNU_SOURCE
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define MIB (1 << 20)

static void enter_cgroup(void)
{
	const char *group = getenv("SCENARIO_CGROUP");
	char pid[16];

	if (!group)
		die("this scenario wants SCENARIO_CGROUP");
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(group, "cgroup.procs", pid);
}

static char *page;

/* The cgroup may read so often a second. */
static void io_limit(void)
{
	int fd = open(argument, O_RDONLY | O_DIRECT | O_CLOEXEC);

	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	need(fd >= 0, argument);
	need(page != MAP_FAILED, "memory");
	enter_cgroup();
	become_victim();
	for (int i = 0; i < 60; i++) {
		truth.start = now();
		need(pread(fd, page, PAGE, (off_t)(64 + i) * MIB) == PAGE, "read directly");
		truth.end = now();
		if (truth.end - truth.start > 25 * MSEC)
			break;
	}
	name_thread("scn-idle");
	if (truth.end - truth.start <= 25 * MSEC)
		truth.spoilt = "nobody was held up";
}

/* The cgroup may read so often a second; the victim, which is not in it, wants the pages that it reads. */
static void io_limit_of_another(void)
{
	int pages[2], fd = open(argument, O_RDONLY | O_CLOEXEC);
	pid_t pid;

	need(fd >= 0, argument);
	need(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
	     "fadvise");
	need(pipe2(pages, O_CLOEXEC) == 0, "pipe");
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		char byte;

		close(pages[0]);
		signal(SIGPIPE, SIG_IGN);
		name_thread("scn-reader");
		enter_cgroup();
		for (int i = 0; i < 60; i++) {
			off_t at = (off_t)(64 + i) * MIB;

			if (write(pages[1], &at, sizeof(at)) < 0 || pread(fd, &byte, 1, at) != 1)
				break;
		}
		pause(); /* tailcam asks the kernel about it */
		_exit(0);
	}
	close(pages[1]);
	become_victim();
	truth.end = truth.start;
	for (off_t at; truth.end - truth.start <= 25 * MSEC && read(pages[0], &at, sizeof(at)) == sizeof(at);) {
		char byte;

		sleep_until(now() + MSEC);
		truth.start = now();
		need(pread(fd, &byte, 1, at) == 1, "read");
		truth.end = now();
	}
	name_thread("scn-idle");
	close(pages[0]);
	usleep(200000); /* by then the outlier's snapshot has the names */
	need(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "end a child");
	if (truth.end - truth.start <= 25 * MSEC)
		truth.spoilt = "nobody was held up";
}

/* Where the kernel says that the victim sleeps, once each millisecond. */
static volatile bool watching;
static volatile int looked, found;

static void watch_victim(struct actor *actor)
{
	char path[64], at[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/wchan", truth.victim);
	while (watching) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? 0 : read(fd, at, sizeof(at) - 1);

		close(fd);
		at[n > 0 ? n : 0] = 0;
		looked++;
		if (strcmp(at, actor->arg) == 0)
			found++;
		usleep(1000);
	}
}

#define CHUNK (16 * PAGE)
#define CHUNKS 128

/* There are too many dirty pages for a slow disk: who makes more of them is held up. */
static void dirty_pages(void)
{
	struct actor watcher = {
		.comm = "scn-watcher", .cpu = other, .fifo = HIGH, .act = watch_victim, .arg = "balance_dirty_pages"};
	static char chunk[CHUNK];
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/dirty", argument);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	need(fd >= 0, path);
	for (int i = 0; i < CHUNKS; i++)
		need(pwrite(fd, chunk, CHUNK, (off_t)i * CHUNK) == CHUNK, "write");
	need(fsync(fd) == 0, "fsync");
	become_victim();
	watching = true;
	start(&watcher);
	truth.spoilt = "nobody was held up";
	for (int i = 0; i < 4 * CHUNKS && truth.spoilt; i++) {
		usleep(500);
		looked = found = 0;
		truth.start = now();
		need(pwrite(fd, chunk, CHUNK, (off_t)(i % CHUNKS) * CHUNK) == CHUNK, "write");
		truth.end = now();
		if (truth.end - truth.start > 25 * MSEC && looked >= 10 && found * 10 >= looked * 9)
			truth.spoilt = NULL;
	}
	watching = false;
	name_thread("scn-idle");
	join(&watcher);
}

/* Writes pages that are dirty already, apart from each other. */
static void write_dirty(struct actor *actor)
{
	sync_file_range(*(int *)actor->arg, 0, 0,
			SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

#define WRITERS 24
#define EACH 4 /* pages of a writer */

/* So much is on its way to the disk that the kernel lets nobody send more for a while. */
static void throttled_writeback(void)
{
	struct actor watcher = {
		.comm = "scn-watcher", .cpu = other, .fifo = HIGH, .act = watch_victim, .arg = "rq_qos_wait"};
	struct actor writers[WRITERS];
	int files[WRITERS], mine = file_in("mine", PAGE);
	char name[32], *buf = pages(PAGE);

	for (int i = 0; i < WRITERS; i++) {
		snprintf(name, sizeof(name), "theirs-%d", i);
		files[i] = file_in(name, 2 * EACH * PAGE);
		need(fsync(files[i]) == 0, "fsync"); /* it has its blocks then */
	}
	need(fsync(mine) == 0 && pwrite(mine, buf, PAGE, 0) == PAGE, "write");
	for (int i = 0; i < WRITERS; i++) {
		for (int j = 0; j < EACH; j++)
			need(pwrite(files[i], buf, PAGE, 2 * j * PAGE) == PAGE, "write");
	}
	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct actor){
			.comm = "scn-writer", .cpu = other, .fifo = LOW, .act = write_dirty, .arg = &files[i]};
		start(&writers[i]);
	}
	usleep(10 * 1000);
	become_victim();
	watching = true;
	start(&watcher);
	write_dirty(&(struct actor){.arg = &mine});
	done();
	watching = false;
	for (int i = 0; i < WRITERS; i++)
		join(&writers[i]);
	join(&watcher);
	if (looked < 10 || found * 2 < looked)
		truth.spoilt = "nobody was held up";
}

static void want_all(struct actor *actor)
{
	(void)actor;
	look_for_gap(20 * MSEC, now() + 2200 * MSEC);
	if (truth.end && gap_pieces != 1)
		truth.spoilt = "the victim ran for a moment";
}

/* Real-time tasks may have 0.95 s of each second: then theirs is idle. */
static void real_time_limit(void)
{
	struct actor victim = {.comm = victim_comm, .cpu = cpu, .fifo = MIDDLE, .act = want_all};

	start(&victim);
	join(&victim);
}

const struct scenario limit_scenarios[] = {
	{"io-limit", io_limit},	      {"others-limit", io_limit_of_another}, {"dirty-pages", dirty_pages},
	{"wbt", throttled_writeback}, {"rt-limit", real_time_limit},	     {NULL, NULL},
};
