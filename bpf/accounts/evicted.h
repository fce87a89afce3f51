/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whose fault it is that a page has to be read again: who evicted it is kept until it comes
 * back, or goes once more. Only evictions in a thread that carries a token are: what kswapd
 * evicts is nobody's.
 */
#ifndef TAILCAM_ACCOUNTS_EVICTED_H
#define TAILCAM_ACCOUNTS_EVICTED_H

#include "accounts/owner.h"

struct evicted_page {
	u64 inode;
	u64 index;
	u32 device;
	u32 generation;
};

struct eviction {
	struct activity_reference by;
	u64 time_ns;
	u32 tid;
	u32 _pad;
};

#define EVICTIONS 16384

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, EVICTIONS);
	__type(key, struct evicted_page);
	__type(value, struct eviction);
} evictions SEC(".maps");

/* Something is in there: nearly always nothing is. */
volatile bool evictions_noted;

/* EVICTED_ELEMENTS of each CPU, as carried.h has its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, EVICTED_ELEMENTS);
	__type(key, u32);
	__type(value, struct activity_evicted);
} evicted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} evicted_written SEC(".maps");

_Static_assert(sizeof(struct activity_evicted) == 64, "a cache line");

/* Of a folio: of larger ones the rest is not known. */
#define EVICTED_PAGES 16

static __always_inline void evicted_key(struct folio *folio, struct evicted_page *key)
{
	struct address_space *mapping = folio->mapping;
	struct inode *inode = mapping->host;

	key->inode = inode->i_ino;
	key->index = folio->index;
	key->device = inode->i_sb->s_dev;
	key->generation = inode->i_generation;
}

static __always_inline u32 evicted_pages(struct folio *folio)
{
	u64 pages = folio_pages(folio);

	return pages < EVICTED_PAGES ? pages : EVICTED_PAGES;
}

/* current has a folio leave the page cache. */
static __always_inline void evicted_note(struct folio *folio)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct evicted_page key = {};
	struct eviction e = {};
	bool known;
	u32 pages;

	if (!activities_open)
		return;
	known = owner_of(current, &e.by) && e.by.token;
	if (!known && !evictions_noted)
		return;
	evictions_noted = true;
	e.time_ns = bpf_ktime_get_ns();
	e.tid = current->pid;
	pages = evicted_pages(folio);
	evicted_key(folio, &key);
	for (u32 i = 0; i < EVICTED_PAGES && i < pages; i++, key.index++) {
		if (known)
			bpf_map_update_elem(&evictions, &key, &e, BPF_ANY);
		else if (bpf_map_lookup_elem(&evictions, &key))
			bpf_map_delete_elem(&evictions, &key);
	}
}

/* current brings in again pages that e was about; the last element of this CPU goes on if it is of the same. */
static __always_inline void evicted_tell(struct task_struct *current, struct eviction *e, u32 pages)
{
	u32 zero = 0, first = bpf_get_smp_processor_id() * EVICTED_ELEMENTS, index;
	u64 *written = bpf_map_lookup_elem(&evicted_written, &zero), n, now = bpf_ktime_get_ns();
	struct activity_evicted *to;

	if (!written)
		return;
	index = first + ((*written - 1) & (EVICTED_ELEMENTS - 1));
	to = bpf_map_lookup_elem(&evicted, &index);
	if (to && to->tid == current->pid && to->by_tid == e->tid && same_owner(&to->by, &e->by) &&
	    now - to->time_ns < EVICTED_TOGETHER_NS) {
		to->pages += pages;
		__sync_lock_test_and_set(&to->time_ns, now);
		return;
	}
	n = __sync_fetch_and_add(written, 1);
	index = first + (n & (EVICTED_ELEMENTS - 1));
	to = bpf_map_lookup_elem(&evicted, &index);
	if (!to)
		return;
	__sync_lock_test_and_set(&to->time_ns, 0);
	to->since_ns = now;
	to->evicted_ns = e->time_ns;
	to->by = e->by;
	to->tid = current->pid;
	to->by_tid = e->tid;
	to->pages = pages;
	__sync_lock_test_and_set(&to->time_ns, now);
}

/* current brings in a folio. */
static __always_inline void evicted_back(struct folio *folio)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct eviction last = {}, *e;
	struct evicted_page key = {};
	u32 pages, found = 0;

	if (!evictions_noted || !account_may(current))
		return;
	pages = evicted_pages(folio);
	evicted_key(folio, &key);
	for (u32 i = 0; i < EVICTED_PAGES && i < pages; i++, key.index++) {
		e = bpf_map_lookup_elem(&evictions, &key);
		if (!e)
			continue;
		if (!found)
			last = *e;
		found += last.tid == e->tid && same_owner(&last.by, &e->by);
		bpf_map_delete_elem(&evictions, &key);
	}
	if (found)
		evicted_tell(current, &last, found);
}

#endif
