/* SPDX-License-Identifier: Apache-2.0 */
/* Victims of what the kernel or others write, and of memory that all want. */
#define _GNU_SOURCE
#include "scenario.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define MIB (1 << 20)

static unsigned long in_flight(int fd)
{
	unsigned long count;
	struct stat st;
	char path[64];

	need(fstat(fd, &st) == 0, "fstat");
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
	FILE *f = fopen(path, "re");
	need(f && fscanf(f, "%*u %*u %*u %*u %*u %*u %*u %*u %lu", &count) == 1, path);
	fclose(f);
	return count;
}

/* The victim reads while others write to its disk, which reads at once and writes slowly. */
void read_behind(int fd, unsigned long deep)
{
	char *buf = pages(PAGE);
	uint64_t limit = now() + 5000 * MSEC;

	while (in_flight(fd) < deep && now() < limit)
		usleep(200);
	become_victim();
	need(pread(fd, buf, PAGE, 0) == PAGE, "read directly");
	done();
}

/* ----------------------------------------------------------------- write-back */

#define DIRTY (24 * MIB)

static void sync_all(struct actor *actor)
{
	need(syncfs(*(int *)actor->arg) == 0, "syncfs");
}

/* The kernel writes dirty pages back. */
static void write_back(void)
{
	int mine = direct_file("mine", PAGE), dirty = file_in("dirty", DIRTY);
	struct actor syncer = {.comm = "scn-syncer", .cpu = other, .fifo = MIDDLE, .act = sync_all, .arg = &dirty};

	need(fsync(dirty) == 0, "fsync"); /* it has its blocks then */
	need(pwrite(dirty, pages(DIRTY), DIRTY, 0) == DIRTY, "write");
	start(&syncer);
	read_behind(mine, 4);
	join(&syncer);
}

/* --------------------------------------------------------------- asynchronous */

/* Submits, and waits for the completion. */
static void async_io(void)
{
	int fd = open(argument, O_RDONLY | O_DIRECT | O_CLOEXEC);
	char *buf = pages(PAGE);
	aio_context_t context = 0;
	struct io_event event;
	struct iocb block =
			    {
				    .aio_fildes = (uint32_t)fd,
				    .aio_lio_opcode = IOCB_CMD_PREAD,
				    .aio_buf = (uint64_t)buf,
				    .aio_nbytes = PAGE,
				    .aio_offset = 96 * MIB,
			    },
		    *list = &block;

	need(fd >= 0, argument);
	need(syscall(SYS_io_setup, 1, &context) == 0, "io_setup");
	become_victim();
	need(syscall(SYS_io_submit, context, 1, &list) == 1, "io_submit");
	need(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1, "io_getevents");
	done();
}

/* ---------------------------------------------------------------- an inode's lock */

static volatile bool writing;
static uint64_t written;

static void extend(struct actor *actor)
{
	char *buf = pages(PAGE);

	writing = true;
	need(pwrite(*(int *)actor->arg, buf, PAGE, PAGE) == PAGE, "write directly");
	written = now();
}

/* Who makes a file longer by a direct write has the file's lock until the disk has it. */
static void inode_lock(void)
{
	int its = direct_file("file", PAGE);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", its);
	int mine = open(path, O_RDWR | O_CLOEXEC);
	need(mine >= 0, path);
	struct actor writer = {.comm = "scn-writer", .cpu = other, .fifo = MIDDLE, .act = extend, .arg = &its};

	start(&writer);
	while (!writing)
		usleep(100);
	usleep(2000);
	become_victim();
	need(pwrite(mine, "x", 1, 0) == 1, "write");
	done();
	join(&writer);
	truth.culprit = writer.tid;
	truth.part = written - truth.start;
}

/* ------------------------------------------------------------------- memory */

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

#define OTHERS 3

/* Several of a cgroup that is full want memory: processes, which share nothing else. */
static void reclaim_storm(void)
{
	const char *group = getenv("SCENARIO_CGROUP");
	volatile bool *wanted = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char pid[16], name[16];

	if (!group)
		die("reclaim-storm wants SCENARIO_CGROUP");
	need(wanted != MAP_FAILED, "shared memory");
	uint64_t alone = populate(8 * MIB), once_more = populate(8 * MIB);

	if (once_more < alone)
		alone = once_more;
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(group, "cgroup.procs", pid);
	for (int i = 0; i < OTHERS; i++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (child == 0) {
			struct sched_param param = {0};

			/* The disk's own threads must go on. */
			need(sched_setscheduler(0, SCHED_OTHER, &param) == 0, "become an ordinary task");
			name_thread("scn-wanter");
			while (!*wanted)
				usleep(200);
			while (*wanted)
				populate(4 * MIB);
			_exit(0);
		}
	}
	for (int i = 0; i < 7; i++) {
		snprintf(name, sizeof(name), "dirty-%d", i);
		close(file_in(name, 4 * MIB));
	}
	*wanted = true;
	become_victim();
	uint64_t took = populate(8 * MIB);
	done();
	*wanted = false;
	while (waitpid(-1, NULL, 0) > 0)
		;
	if (took > 5 * alone)
		truth.part = took - alone;
	else
		truth.spoilt = "there was room in memory";
}

const struct scenario bulk_scenarios[] = {
	{"writeback", write_back},	  {"async-io", async_io}, {"inode-lock", inode_lock},
	{"reclaim-storm", reclaim_storm}, {NULL, NULL},
};
