/* SPDX-License-Identifier: Apache-2.0 */
/* Victims that wait for locks of the kernel. */
#define _GNU_SOURCE
#include "two.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUCH (512ul << 20)

static char *memory;
static volatile bool has_begun;

/* ------------------------------------------------------------ the memory map */

static void unmap_much(struct actor *actor)
{
	(void)actor;
	exactly(begin);
	has_begun = true;
	need(munmap(memory, MUCH) == 0, "munmap");
	released = now();
}

static void map_little(struct actor *actor)
{
	truth.victim = actor->tid;
	while (!has_begun)
		;
	spin_until(now() + MSEC / 2);
	truth.start = now();
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	truth.end = now();
	need(at != MAP_FAILED, "mmap");
}

/* Another thread gives back much memory, and has the memory map meanwhile. */
static void memory_map(void)
{
	memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || (madvise(memory, MUCH, MADV_NOHUGEPAGE) && errno != EINVAL)) {
		truth.spoilt = "there is no memory";
		return;
	}
	memset(memory, 1, MUCH);
	two("scn-unmapper", unmap_much, map_little);
	if (released < truth.start)
		truth.spoilt = "the memory was free before";
}

/* ------------------------------------------------------------ the lock of a file */

static int filled;

static void fill_much(struct actor *actor)
{
	(void)actor;
	exactly(begin);
	has_begun = true;
	need(pwrite(filled, memory, MUCH / 2, 4096) == MUCH / 2, "write");
	released = now();
}

static void fill_little(struct actor *actor)
{
	truth.victim = actor->tid;
	while (!has_begun)
		;
	spin_until(now() + MSEC / 2);
	truth.start = now();
	need(pwrite(filled, "x", 1, 0) == 1, "write");
	truth.end = now();
}

/* Another thread writes much to a file at once, and never sleeps: who wants to write spins. */
static void spinning_writer(void)
{
	filled = memfd_create("scn-file", MFD_CLOEXEC);
	memory = mmap(NULL, MUCH / 2, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(filled >= 0 && memory != MAP_FAILED, "memory");
	two("scn-filler", fill_much, fill_little);
	if (released < truth.start)
		truth.spoilt = "it was written before";
}

const struct scenario kernel_lock_scenarios[] = {
	{"mmap-lock", memory_map},
	{"spin-writer", spinning_writer},
	{NULL, NULL},
};
