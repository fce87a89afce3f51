/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The page cache. A page that is added for a thread is a miss of it: to be read, or read
 * ahead. A page that a thread reads is a hit, unless it was added for this read or ahead of
 * it. Pages that are added to be written are neither.
 *
 * The kernel tells what a read wants after pages for the first part of it were added, and
 * before others are; of a fault, before. So what was taken for a hit is taken back when it is
 * added in the same call, and a miss when it is written first.
 */
#ifndef TAILCAM_ACCOUNTS_PAGECACHE_H
#define TAILCAM_ACCOUNTS_PAGECACHE_H

#include "accounts/owner.h"

const volatile bool account_pagecache; /* the group is on */

#define PAGES 32768

/* Who brought in which folio, by its address: of the newest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PAGES);
	__type(key, u64);
	__type(value, struct activity_reference);
} page_owners SEC(".maps");

static __always_inline u64 smaller(u64 a, u64 b)
{
	return a < b ? a : b;
}

static __always_inline u64 larger(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* How many pages [a, a_end) and [b, b_end) have in common. */
static __always_inline u64 overlap(u64 a, u64 a_end, u64 b, u64 b_end)
{
	u64 first = larger(a, b), end = smaller(a_end, b_end);

	return end > first ? end - first : 0;
}

/* What current has done with a file, and with no other since. */
static __always_inline struct progress *cache_progress(struct task_struct *current, u64 mapping)
{
	struct progress *p = progress_make(current);

	if (p && p->mapping != mapping) {
		p->mapping = mapping;
		p->read_index = p->read_end = 0;
		p->new_first = p->new_end = 0;
		p->fault_index = 0;
	}
	return p;
}

/* current reads pages, index to last of them are still to come; end: one behind the last that the file has. */
static __always_inline void cache_read(struct address_space *mapping, u64 index, u64 last)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 size, end, call = task_reads(current);
	struct activity_account *a;
	struct progress *p;

	a = owner_account_now(current);
	p = a ? cache_progress(current, pointer_number(mapping)) : NULL;
	if (!p)
		return;
	if (p->read_call != call && p->new_first < p->read_end)
		p->new_first = smaller(p->read_end, p->new_end); /* the last read is over, and has had them */
	size = BPF_CORE_READ(mapping, host, i_size);
	end = smaller(last + 1, (size + (1ULL << page_shift) - 1) >> page_shift);
	if (end <= index)
		return;
	if (p->read_end != end || p->read_call != call || index <= p->read_index)
		account_add(a, ACTIVITY_CACHE_HITS, end - index - overlap(index, end, p->new_first, p->new_end));
	p->read_index = index;
	p->read_end = end;
	p->read_call = call;
	if (p->new_first < index)
		p->new_first = smaller(index, p->new_end);
}

/* A fault of current wants pages of [first, end): a hit, unless it has been counted, or they are new. */
static __always_inline void cache_wanted(struct progress *p, struct activity_account *a, u64 number, u64 first, u64 end)
{
	if (p->fault_number == number)
		return;
	p->fault_number = number;
	if (overlap(first, end, p->new_first, p->new_end))
		p->new_first = smaller(end, p->new_end);
	else
		account_add(a, ACTIVITY_CACHE_HITS, 1);
}

/*
 * current has a page fault in a file. Where the cache has pages around the one it wants, these
 * are mapped; if that is not among them, or none are there, it is looked for, read, and the
 * fault begins anew. index: plus one, of what is looked for; 0: it is not.
 */
static __always_inline void cache_fault(struct address_space *mapping, u64 first, u64 end, u64 index)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct activity_account *a;
	struct progress *p;

	a = owner_account_now(current);
	p = a ? cache_progress(current, pointer_number(mapping)) : NULL;
	if (!p)
		return;
	cache_wanted(p, a, faults_of(current) + 1, first, end);
	p->fault_index = index;
}

static __always_inline void cache_add(struct folio *folio)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u64 first, end, hits = 0, key = pointer_number(folio);
	struct activity_reference o = {};
	struct activity_account *a;
	struct progress *p;

	a = owner_of(current, &o) ? owner_account(&o) : NULL;
	if (a && o.token)
		bpf_map_update_elem(&page_owners, &key, &o, BPF_ANY);
	p = a ? cache_progress(current, (u64)BPF_CORE_READ(folio, mapping)) : NULL;
	if (!p)
		return;
	first = folio->index;
	end = first + folio_pages(folio);
	account_add(a, ACTIVITY_CACHE_MISSES, end - first);
	if (p->read_end && p->read_call == task_reads(current))
		hits = overlap(first, end, p->read_index, p->read_end);
	if (first != p->new_end || p->new_first == p->new_end)
		p->new_first = first;
	p->new_end = end;
	p->added_index = first + 1;
	if (p->fault_index && p->fault_number == faults_of(current) + 1 &&
	    overlap(first, end, p->fault_index - 1, p->fault_index)) {
		hits++;
		p->new_first = p->fault_index;
		p->fault_index = 0;
	}
	if (hits)
		account_add(a, ACTIVITY_CACHE_HITS, -hits);
}

/* current makes a folio dirty. If it has just been added, that was to write it. */
static __always_inline void cache_dirtied(struct folio *folio, struct address_space *mapping)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct progress *p = progress_of(current);
	struct activity_account *a;
	u64 first, end;

	if (!p || p->mapping != pointer_number(mapping) || !p->added_index)
		return;
	first = BPF_CORE_READ(folio, index);
	if (p->added_index != first + 1 || p->new_first > first)
		return;
	p->added_index = 0;
	end = p->new_end;
	p->new_end = first;
	a = owner_account_now(current);
	if (a)
		account_add(a, ACTIVITY_CACHE_MISSES, first - end);
}

/* A page leaves as memory is wanted, or as somebody asked for that; not with a part of its file, or all of it. */
static __always_inline bool cache_evicts(struct task_struct *p, struct inode *inode, u64 index)
{
	if (p->flags & PF_MEMALLOC || task_reclaims(p))
		return true;
	return inode->i_nlink && index << page_shift < (u64)inode->i_size;
}

/* Whether the token of what was noted lives. Nothing that comes for it later is late: nobody works for it then. */
static __always_inline bool cache_owner_lives(struct activity_reference *o)
{
	struct account_process process;
	struct activity_token *token;

	if (!account_process_find(o->process, o->serial, &process))
		return false;
	token = account_token(&process, o->token);
	return token && token->generation == o->generation;
}

/* current has a folio leave the page cache. */
static __always_inline void cache_removed(struct folio *folio)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct activity_reference *o, evicts = {}, owner = {};
	struct activity_account *a;
	u64 key = pointer_number(folio);

	if (!activities_open)
		return;
	o = bpf_map_lookup_elem(&page_owners, &key);
	if (o) {
		owner = *o;
		bpf_map_delete_elem(&page_owners, &key);
	}
	owner_of(current, &evicts);
	if ((!owner.serial && !evicts.serial) || same_owner(&owner, &evicts) ||
	    !cache_evicts(current, folio->mapping->host, folio->index))
		return;
	a = owner.serial && cache_owner_lives(&owner) ? owner_account(&owner) : NULL;
	if (a)
		account_add(a, ACTIVITY_EVICTED_PAGES, folio_pages(folio));
	a = evicts.serial ? owner_account(&evicts) : NULL;
	if (a)
		account_add(a, ACTIVITY_EVICTS_PAGES, folio_pages(folio));
}

#endif
