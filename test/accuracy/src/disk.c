/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that wait for a disk, or for what the kernel does because of one. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define MIB (1 << 20)

char *pages(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	need(at != MAP_FAILED, "memory");
	return at;
}

static int open_direct(void)
{
	int fd = open(argument, O_RDWR | O_DIRECT | O_CLOEXEC);

	need(fd >= 0, argument);
	return fd;
}

/* A file of the directory that the scenario got. */
int file_in(const char *name, size_t size)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", argument, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	need(fd >= 0, path);
	char *buf = pages(size);
	memset(buf, 'x', size);
	need(pwrite(fd, buf, size, 0) == (ssize_t)size, path);
	munmap(buf, size);
	return fd;
}

int direct_file(const char *name, size_t size)
{
	char path[64];
	int fd = file_in(name, size);

	need(fsync(fd) == 0, name);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	need(direct >= 0, name);
	close(fd);
	return direct;
}

/* The disk takes its time, the queue is empty. */
static void slow_disk(void)
{
	int fd = open_direct();
	char *buf = pages(PAGE);

	become_victim();
	need(pread(fd, buf, PAGE, 64 * MIB) == PAGE, "read directly");
	done();
}

/* ---------------------------------------------- the requests of another one */

#define DEEP 8
static volatile bool submitted;
static uint64_t written;

/* What is written: so much, DEEP times. */
static struct much {
	int fd;
	size_t each;
	off_t first, apart;
} much;

static void write_much(struct actor *actor)
{
	struct iocb block[DEEP], *list[DEEP];
	struct io_event event[DEEP];
	aio_context_t context = 0;
	char *buf = pages(much.each);

	(void)actor;
	need(syscall(SYS_io_setup, DEEP, &context) == 0, "io_setup");
	for (int i = 0; i < DEEP; i++) {
		block[i] = (struct iocb){
			.aio_fildes = (uint32_t)much.fd,
			.aio_lio_opcode = IOCB_CMD_PWRITE,
			.aio_buf = (uint64_t)buf,
			.aio_nbytes = much.each,
			.aio_offset = much.first + i * much.apart,
		};
		list[i] = &block[i];
	}
	need(syscall(SYS_io_submit, context, DEEP, list) == DEEP, "io_submit");
	submitted = true;
	need(syscall(SYS_io_getevents, context, DEEP, DEEP, event, NULL) == DEEP, "io_getevents");
	written = now();
	close(much.fd);
}

static void read_behind_much(int fd, off_t at)
{
	struct actor writer = {.comm = "scn-writer", .cpu = other, .fifo = MIDDLE, .act = write_much};
	char *buf = pages(PAGE);

	start(&writer);
	while (!submitted)
		usleep(100);
	become_victim();
	need(pread(fd, buf, PAGE, at) == PAGE, "read directly");
	done();
	join(&writer);
	truth.culprit = writer.tid;
	truth.part = written - truth.start;
	if (written < truth.start || written > truth.end)
		truth.spoilt = "the read was not behind the writes";
}

static void deep_queue(void)
{
	much = (struct much){.fd = open_direct(), .each = PAGE, .first = 8 * MIB, .apart = 8 * MIB};
	read_behind_much(open_direct(), 4 * MIB);
}

/* The other one moves much more than the victim. */
static void bulk_io(void)
{
	much = (struct much){.fd = direct_file("much", DEEP / 2 * MIB), .each = MIB / 2, .apart = MIB / 2};
	read_behind_much(direct_file("mine", PAGE), 0);
}

/* ----------------------------------------------------------------- journal */

static volatile bool committing;
static uint64_t committed;

static void commit(struct actor *actor)
{
	committing = true;
	need(fsync(*(int *)actor->arg) == 0, "fsync");
	committed = now();
}

/* The own data is on the disk, the own metadata is in a commit that another one began. */
static void journal(void)
{
	int mine = file_in("mine", PAGE), its = file_in("its", PAGE);
	struct actor committer = {.comm = "scn-committer", .cpu = other, .fifo = MIDDLE, .act = commit, .arg = &its};

	need(sync_file_range(mine, 0, 0,
			     SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0 &&
		     sync_file_range(its, 0, 0,
				     SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					     SYNC_FILE_RANGE_WAIT_AFTER) == 0,
	     "write the data");
	start(&committer);
	while (!committing)
		usleep(100);
	usleep(2000);
	become_victim();
	need(fsync(mine) == 0, "fsync");
	done();
	join(&committer);
	if (committed < truth.end - (truth.end - truth.start) / 10)
		truth.spoilt = "the commit was over before";
}

/* -------------------------------------------------------------- page fault */

static void page_fault(void)
{
	int fd = file_in("mapped", PAGE);

	need(fsync(fd) == 0, "fsync");
	need(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "evict a page");
	volatile char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	need(at != MAP_FAILED, "map a file");
	become_victim();
	if (*at != 'x')
		die("the page is not what was written");
	done();
}

/* ----------------------------------------------------------------- reclaim */

static uint64_t populate(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t begin = now();

	need(at != MAP_FAILED, "memory");
	need(madvise(at, size, MADV_POPULATE_WRITE) == 0, "populate memory");
	uint64_t took = now() - begin;
	munmap(at, size);
	return took;
}

/* The memory of its cgroup is full of what has to be written to a slow disk first. */
static void reclaim(void)
{
	const size_t size = 8 * MIB;
	const char *group = getenv("SCENARIO_CGROUP");
	char pid[16];

	if (!group)
		die("reclaim wants SCENARIO_CGROUP");
	uint64_t alone = populate(size);
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(group, "cgroup.procs", pid);
	for (int i = 0; i < 7; i++) {
		char name[16];

		snprintf(name, sizeof(name), "dirty-%d", i);
		close(file_in(name, 4 * MIB));
	}
	become_victim();
	uint64_t took = populate(size);
	done();
	if (took > 5 * alone)
		truth.part = took - alone;
	else
		truth.spoilt = "there was room in memory";
}

/* -------------------------------------------------------------- work queue */

static void write_back(struct actor *actor)
{
	need(sync_file_range(*(int *)actor->arg, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0,
	     "write back");
}

struct disk_io {
	unsigned long written, in_flight; /* requests */
};

static struct disk_io disk_io(int fd)
{
	struct disk_io io;
	struct stat st;
	char path[64], text[512];

	need(fstat(fd, &st) == 0, "fstat");
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
	need(n > 0, path);
	close(file);
	text[n] = 0;
	need(sscanf(text, "%*u %*u %*u %*u %lu %*u %*u %*u %lu", &io.written, &io.in_flight) == 2, path);
	return io;
}

/* Waits until the disk of a file has written more than this, and all. */
static void disk_has_written(int fd, unsigned long before)
{
	struct disk_io io;

	do {
		usleep(200);
		io = disk_io(fd);
	} while (io.written == before || io.in_flight > 0);
}

static unsigned long before_first;
static bool taken;

/*
 * Once the first work has begun it lets nobody else have its CPU, which can be
 * any. So there is one of these on each of two CPUs: who still runs then is the
 * victim.
 */
static void write_behind(struct actor *actor)
{
	int mine = *(int *)actor->arg;

	disk_has_written(mine, before_first);
	usleep(2000);
	if (__atomic_exchange_n(&taken, true, __ATOMIC_ACQ_REL))
		return;
	unsigned long before = disk_io(mine).written;
	need(sync_file_range(mine, 0, 0, SYNC_FILE_RANGE_WRITE) == 0, "begin to write back");
	disk_has_written(mine, before); /* the work is queued then */
	cpu = actor->cpu;
	become_victim();
	need(sync_file_range(mine, 0, 0, SYNC_FILE_RANGE_WAIT_AFTER) == 0, "write back");
	done();
}

/*
 * ext4 finishes what it has written to new blocks in a queue that executes one
 * work after the other. The harness makes the first one long.
 */
static void work_queue(void)
{
	int mine = file_in("mine", PAGE), its = file_in("its", PAGE);
	struct actor first = {.comm = "scn-first", .cpu = other, .fifo = MIDDLE, .act = write_back, .arg = &its};
	struct actor here = {.comm = "scn-here", .cpu = cpu, .fifo = MIDDLE, .act = write_behind, .arg = &mine};
	struct actor there = {.comm = "scn-there", .cpu = other, .fifo = MIDDLE, .act = write_behind, .arg = &mine};

	before_first = disk_io(its).written;
	start(&here);
	start(&there);
	start(&first);
	join(&here);
	join(&there);
	join(&first);
	if (truth.end - truth.start < LONG / 2)
		truth.spoilt = "the disk answered when the first work was almost over";
}

/* --------------------------------------------------------- a frozen file system */

static uint64_t frozen_at, thawed_at;

static void freeze_files(struct actor *actor)
{
	int fd = *(int *)actor->arg;

	need(ioctl(fd, FIFREEZE, 0) == 0, "FIFREEZE");
	frozen_at = now();
	sleep_until(frozen_at + LONG);
	thawed_at = now();
	need(ioctl(fd, FITHAW, 0) == 0, "FITHAW");
}

/*
 * Starts a process that thaws a file system as soon as alive, the end of a pipe, is closed: by
 * this program, or because it was killed.
 */
static pid_t thaw_in_the_end(int dir, int *alive)
{
	int ends[2];
	char byte;
	pid_t pid;

	need(pipe2(ends, O_CLOEXEC) == 0, "pipe");
	pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		close(ends[1]);
		while (read(ends[0], &byte, 1) < 0)
			;
		ioctl(dir, FITHAW, 0);
		_exit(0);
	}
	close(ends[0]);
	*alive = ends[1];
	return pid;
}

/* It writes while another one has frozen the file system, as for a snapshot. */
static void frozen_files(void)
{
	int file = file_in("mine", PAGE), dir = open(argument, O_RDONLY | O_DIRECTORY | O_CLOEXEC), alive;
	pid_t guard = thaw_in_the_end(dir, &alive);
	struct actor freezer = {.comm = "scn-freezer", .cpu = other, .fifo = MIDDLE, .act = freeze_files, .arg = &dir};

	need(dir >= 0, argument);
	start(&freezer);
	while (!*(volatile uint64_t *)&frozen_at)
		usleep(200);
	become_victim();
	need(pwrite(file, "x", 1, 0) == 1, "write");
	done();
	join(&freezer);
	close(alive);
	waitpid(guard, NULL, 0);
	truth.culprit = freezer.tid; /* thawing takes a while as well */
	if (thawed_at < truth.start + LONG / 2)
		truth.spoilt = "it was thawed before";
}

const struct scenario disk_scenarios[] = {
	{"slow-disk", slow_disk},	{"deep-queue", deep_queue},
	{"full-queue", deep_queue},	{"journal", journal},
	{"page-fault", page_fault},	{"reclaim", reclaim},
	{"work-queue", work_queue},	{"bulk-io", bulk_io},
	{"frozen-files", frozen_files}, {NULL, NULL},
};
