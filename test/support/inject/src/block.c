/* SPDX-License-Identifier: Apache-2.0 */
/* Direct reads or writes of a file or a device, each one measured. */
#define _GNU_SOURCE
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COMM "inj-block"

struct worker {
	int fd;
	bool write;
	long size, requests;
	uint64_t first, span; /* its own part of the file, in bytes */
	pthread_barrier_t *start;
	struct events events;
	pthread_t thread;
};

noinline long inject_block_read(int fd, void *buf, long size, uint64_t offset)
{
	return raw(SYS_pread64, fd, (long)buf, size, (long)offset, 0, 0);
}

noinline long inject_block_write(int fd, const void *buf, long size, uint64_t offset)
{
	return raw(SYS_pwrite64, fd, (long)buf, size, (long)offset, 0, 0);
}

static void *worker_main(void *arg)
{
	struct worker *self = arg;
	/* O_DIRECT wants whole, aligned blocks. */
	void *buf = aligned_alloc(4096, ((size_t)self->size + 4095) / 4096 * 4096);

	need(buf, "memory for direct requests");
	memset(buf, 0x5a, (size_t)self->size);
	name_thread("inj-idle");
	pthread_barrier_wait(self->start);
	name_thread(COMM);
	for (long i = 0; i < self->requests; i++) {
		uint64_t offset = self->first + (uint64_t)i * (uint64_t)self->size % self->span;
		uint64_t start = now();
		long ret = self->write ? inject_block_write(self->fd, buf, self->size, offset)
				       : inject_block_read(self->fd, buf, self->size, offset);
		uint64_t end = now();

		errno = ret < 0 ? (int)-ret : EIO;
		need(ret == self->size, "direct request");
		events_add(&self->events, "block", "request", self->write ? "inject_block_write" : "inject_block_read",
			   start, end)
			->offset = (int64_t)offset;
	}
	name_thread("inj-idle");
	free(buf);
	return NULL;
}

static uint64_t size_of(int fd)
{
	struct stat st;
	uint64_t size;

	need(fstat(fd, &st) == 0, "size of the file");
	if (!S_ISBLK(st.st_mode))
		return (uint64_t)st.st_size;
	need(ioctl(fd, BLKGETSIZE64, &size) == 0, "size of the device");
	return size;
}

int cmd_block(int argc, char **argv)
{
	static pthread_barrier_t start;

	if (argc != 6)
		die("block wants PATH read|write block_bytes requests threads");
	bool write = strcmp(argv[2], "write") == 0;
	if (!write && strcmp(argv[2], "read") != 0)
		die("block can read or write");
	long size = number(argv[3], 512, 1 << 24);
	long requests = number(argv[4], 1, 100000000);
	int threads = (int)number(argv[5], 1, 10000);
	int fd = open(argv[1], (write ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC);

	need(fd >= 0, argv[1]);
	uint64_t span = size_of(fd) / (uint64_t)threads / (uint64_t)size * (uint64_t)size;
	if (span == 0)
		die("the file is too small: it must hold one block for each thread");
	struct worker *worker = calloc((size_t)threads, sizeof(*worker));
	need(worker, "memory for threads");
	need(pthread_barrier_init(&start, NULL, (unsigned)threads) == 0, "make a barrier");
	for (int i = 0; i < threads; i++) {
		worker[i] = (struct worker){
			.fd = fd,
			.write = write,
			.size = size,
			.requests = requests / threads + (i < requests % threads),
			.first = (uint64_t)i * span,
			.span = span,
			.start = &start,
		};
		events_init(&worker[i].events, (size_t)worker[i].requests);
		need(pthread_create(&worker[i].thread, NULL, worker_main, &worker[i]) == 0, "make a thread");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(worker[i].thread, NULL);
		events_print(&worker[i].events);
	}
	return 0;
}
