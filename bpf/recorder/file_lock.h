/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Locks of files: who asks, who has them. */
#ifndef TAILCAM_RECORDER_FILE_LOCK_H
#define TAILCAM_RECORDER_FILE_LOCK_H

#include "lib/core_fixes.h"
#include "recorder/ring.h"

/* include/linux/filelock.h, asm-generic/fcntl.h */
#define FL_FLOCK 2
#define FL_OFDLCK 1024
#define F_RDLCK 0
#define FILE_LOCK_DEFERRED 1
#define EAGAIN 11

/*
 * Programs take and give back locks of their files all the time, several for a transaction: what is
 * recorded is only who asked for one that another has, and what becomes of the locks of that file
 * in some seconds after. By the file's address, which others may share.
 */
#define WANTED_FILES 256
#define WANTED_NS (8 * 1000000000ull)

u64 file_lock_wanted[WANTED_FILES]; /* when; 0: never */

static __always_inline bool file_lock_matters(struct inode *inode, bool held)
{
	u64 *wanted = &file_lock_wanted[(pointer_number(inode) * HASH_FACTOR) >> 56];

	if (held)
		*wanted = bpf_ktime_get_ns();
	return *wanted && bpf_ktime_get_ns() - *wanted < WANTED_NS;
}

/* Beyond so many of a file, nobody is named. */
#define MAX_FILE_LOCKS 16

static __always_inline bool file_locks_conflict(struct read_file_lock *a, struct read_file_lock *b)
{
	if (a->owner == b->owner || (a->type == F_RDLCK && b->type == F_RDLCK))
		return false;
	return (a->flags & FL_FLOCK) || (a->start <= b->end && b->start <= a->end);
}

/*
 * A process that has what was asked for; 0: not known, as those are whose lock is that of an open
 * file. The list is read without its lock: what is freed meanwhile is another one, or no memory.
 */
static __always_inline u32 file_lock_holder(struct inode *inode, struct read_file_lock *asked)
{
	struct file_lock_context *locks = BPF_CORE_READ(inode, i_flctx);
	struct read_file_lock has;
	u64 head, at;
	int i;

	if (asked->flags & FL_FLOCK)
		head = (u64)locks + bpf_core_field_offset(struct file_lock_context, flc_flock);
	else
		head = (u64)locks + bpf_core_field_offset(struct file_lock_context, flc_posix);
	at = head;
	for (i = 0; i < MAX_FILE_LOCKS; i++) {
		at = (u64)BPF_CORE_READ((struct list_head *)at, next);
		if (!at || at == head)
			break;
		file_lock_read(&has, (struct file_lock *)(at - file_lock_link()));
		if (file_locks_conflict(&has, asked))
			return has.flags & FL_OFDLCK ? 0 : has.pid;
	}
	return 0;
}

static __always_inline int record_file_lock(void *ctx, struct inode *inode, struct file_lock *lock, int ret)
{
	struct read_file_lock asked;
	struct record r;
	bool held;

	if (!lock) /* so the verifier (6.13+) takes the tracepoint, as that asks */
		return 0;
	held = ret == -EAGAIN || ret == FILE_LOCK_DEFERRED;
	if (!file_lock_matters(inode, held))
		return 0;
	file_lock_read(&asked, lock);
	record_init(&r, REC_FILE_LOCK);
	r.file_lock.inode = inode->i_ino;
	r.file_lock.device = inode->i_sb->s_dev;
	r.file_lock.ret = ret;
	r.file_lock.start = asked.start;
	r.file_lock.end = asked.end;
	r.file_lock.flags = asked.flags;
	r.file_lock.type = asked.type;
	r.file_lock.pid = bpf_get_current_pid_tgid() >> 32;
	if (held)
		r.file_lock.holder_pid = file_lock_holder(inode, &asked);
	return record(ctx, &r);
}

#endif
