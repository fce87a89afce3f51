/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Requests of block devices, for whoever submitted what is in them. A request is made of
 * bios, which several may have submitted where they were merged; so the owner is kept for
 * each bio, by its address, from its submission to the completion of its request.
 *
 * Who writes back dirty pages is not who dirtied them. A file has the owner of all that
 * made pages of it dirty since it was last written back as a whole; more than one: their
 * process is known, and which token it was is not.
 */
#ifndef TAILCAM_ACCOUNTS_BLOCK_H
#define TAILCAM_ACCOUNTS_BLOCK_H

#include "accounts/owner.h"

const volatile bool account_block; /* the group is on: writeback_dirty_folio is also of the page cache */

#define BIOS 8192
#define FILES 8192
#define MERGED 256 /* bios of one request that are looked at */

struct owned_bio {
	struct activity_reference owner;
	u64 queued_ns;
	u64 issued_ns; /* 0: not yet */
	u32 bytes;     /* as issued */
	u32 writeback; /* by another, of pages that the owner dirtied */
};

/* Bios that were submitted and have not completed, by address. Those that never become part of a request age out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BIOS);
	__type(key, u64);
	__type(value, struct owned_bio);
} bios SEC(".maps");

/* Who dirtied pages of a file since it was written back, by the address of its inode. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FILES);
	__type(key, u64);
	__type(value, struct activity_reference);
} dirty_files SEC(".maps");

/* Whose a bio is that current submits. */
static __always_inline bool bio_owner(struct task_struct *current, struct owned_bio *to)
{
	struct progress *p = current->flags & PF_KTHREAD ? progress_of(current) : NULL;

	if (!p || !p->writes_back)
		return owner_of(current, &to->owner);
	to->owner = p->writeback;
	to->writeback = 1;
	return to->owner.serial;
}

static __always_inline void bio_queued(struct bio *bio)
{
	u64 key = pointer_number(bio);
	struct owned_bio fresh = {};

	if (!activities_open) /* and what was kept has owners that are gone */
		return;
	if (bio_owner(bpf_get_current_task_btf(), &fresh)) {
		fresh.queued_ns = bpf_ktime_get_ns();
		if (bpf_map_update_elem(&bios, &key, &fresh, BPF_ANY))
			__sync_fetch_and_add(&lost_bios, 1);
	} else if (bpf_map_lookup_elem(&bios, &key)) {
		bpf_map_delete_elem(&bios, &key); /* of an earlier bio in its place */
	}
}

/* ------------------------------------------------------------------ issue */

struct bio_walk {
	struct bio *bio;
	struct activity_reference last; /* who was credited with the request */
	u64 now;
};

/* The request is counted once for each owner: whether this is the first bio of the next one. */
static __always_inline bool bio_first(struct bio_walk *w, struct owned_bio *b)
{
	if (same_owner(&w->last, &b->owner))
		return false;
	w->last = b->owner;
	return true;
}

/*
 * What goes to the device counts from here on: some machines keep completions, which come in
 * interrupts, from every program, one in a hundred.
 */
static __always_inline void bio_issued(struct bio_walk *w, struct owned_bio *b)
{
	struct activity_account *a = owner_account(&b->owner);
	bool first = bio_first(w, b);

	if (!a)
		return;
	account_add(a, ACTIVITY_BLOCK_BYTES, b->bytes);
	if (b->writeback)
		account_add(a, ACTIVITY_WRITEBACK_BYTES, b->bytes);
	if (!first)
		return;
	account_add(a, ACTIVITY_BLOCK_REQUESTS, 1);
	account_add(a, ACTIVITY_BLOCK_QUEUE_NS, w->now - b->queued_ns);
}

static long bio_issue(u32 i, struct bio_walk *w)
{
	struct bio *bio = w->bio;
	u64 key = (u64)bio;
	struct owned_bio *b;
	LOOP_RESULTS(go_on, stop);

	if (!key)
		return stop;
	b = bpf_map_lookup_elem(&bios, &key);
	if (b && !b->issued_ns) {
		b->bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
		b->issued_ns = w->now;
		bio_issued(w, b);
	}
	w->bio = BPF_CORE_READ(bio, bi_next);
	return go_on;
}

static __always_inline struct bio *request_bio(struct request *rq)
{
	return (struct bio *)pointer_number(((struct request___bio *)rq)->bio);
}

/* Issued again after the driver gave it back, it has been issued since the first time. */
static __always_inline void request_issued(struct request *rq)
{
	struct bio_walk w = {.bio = request_bio(rq)};

	if (!activities_open || !w.bio)
		return;
	w.now = bpf_ktime_get_ns();
	bpf_loop(MERGED, bio_issue, &w, 0);
}

/* --------------------------------------------------------------- completion */

static __always_inline void bio_completed(struct bio_walk *w, struct owned_bio *b)
{
	struct activity_account *a = owner_account(&b->owner);

	if (!bio_first(w, b) || !a)
		return;
	account_add(a, ACTIVITY_BLOCK_DEVICE_NS, w->now - (b->issued_ns ?: b->queued_ns));
	if (!b->issued_ns) /* a flush, which others were issued for */
		account_add(a, ACTIVITY_BLOCK_REQUESTS, 1);
}

static long bio_complete(u32 i, struct bio_walk *w)
{
	struct bio *bio = w->bio;
	u64 key = (u64)bio;
	struct owned_bio *b;
	LOOP_RESULTS(go_on, stop);

	if (!key)
		return stop;
	b = bpf_map_lookup_elem(&bios, &key);
	if (b) {
		bio_completed(w, b);
		bpf_map_delete_elem(&bios, &key);
	}
	w->bio = BPF_CORE_READ(bio, bi_next);
	return go_on;
}

static __always_inline void request_completed(struct request *rq, u32 bytes)
{
	struct bio_walk w = {.bio = request_bio(rq)};

	/* A part of the request: blk_update_request() is called again for the rest. */
	if (!activities_open || !w.bio || bytes < ((struct request___bio *)rq)->__data_len)
		return;
	w.now = bpf_ktime_get_ns();
	bpf_loop(MERGED, bio_complete, &w, 0);
}

/* ---------------------------------------------------------------- writeback */

/* current makes pages of a file dirty that were clean. */
static __always_inline void file_dirtied(struct address_space *mapping)
{
	struct activity_reference o = {}, *was;
	u64 key = (u64)BPF_CORE_READ(mapping, host);
	bool known;

	if (!activities_open)
		return;
	known = owner_of(bpf_get_current_task_btf(), &o);
	was = bpf_map_lookup_elem(&dirty_files, &key);
	if (!was) {
		if (known && bpf_map_update_elem(&dirty_files, &key, &o, BPF_ANY))
			__sync_fetch_and_add(&lost_files, 1);
	} else if (!known || !same_owner(was, &o)) {
		was->token = 0; /* shared */
	}
}

/* current, a worker, begins to write back a file; it has ended, and did not stop before its last page. */
static __always_inline void file_write_begins(struct inode *inode)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 key = pointer_number(inode);
	struct activity_reference *o;
	struct progress *p;

	if (!(current->flags & PF_KTHREAD))
		return;
	o = bpf_map_lookup_elem(&dirty_files, &key);
	p = o ? progress_make(current) : progress_of(current);
	if (!p)
		return;
	p->writes_back = key;
	p->writeback.serial = 0;
	if (o)
		p->writeback = *o;
}

static __always_inline void file_write_ends(struct inode *inode, struct writeback_control *control)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 key = pointer_number(inode);
	struct progress *p;

	if (!(current->flags & PF_KTHREAD))
		return;
	p = progress_of(current);
	if (!p || !p->writes_back)
		return;
	p->writes_back = 0;
	if (control->nr_to_write > 0)
		bpf_map_delete_elem(&dirty_files, &key);
}

#endif
