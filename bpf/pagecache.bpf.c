//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The page cache by file. Loaded by internal/pagecache while somebody asks for it.
 * Programs whose tracepoint the kernel lacks are left out before this is loaded.
 */
#include "abi/pagecache.h"
#include "accounts/account.h" /* its maps are those of the daemon, if one has activities: otherwise nobody has tokens */
#include "lib/core_fixes.h"

#define PF_MEMALLOC 0x00000800 /* include/linux/sched.h */
#define PF_KSWAPD 0x00020000
#define TMPFS_MAGIC 0x01021994 /* include/uapi/linux/magic.h */
#define BDEVFS_MAGIC 0x62646576
#define BATCH_NS 100000 /* a batch of removals takes less (delete_from_page_cache_batch()) */
#define RUNS 4
#define HINTS 4096

/* Pages that were brought in one after the other, and that nobody has asked for since. Empty: start is end. */
struct run {
	u64 start;
	u64 end;
};

/* Those of one file. Written without a lock: a lost change is a page that is a hit too early. */
struct waiting {
	struct run runs[RUNS];
	u64 next; /* which goes if none is empty */
};

/* What is remembered of a thread. Mappings are ids of files: see file_id(). */
struct thread {
	/* The last read: it asks again for what is left of it. */
	u64 read_mapping;
	u64 read_index;
	u64 read_last;
	u64 read_calls;
	/* The last fault. */
	u64 fault_mapping;
	u64 fault_index;
	u64 fault_missed; /* the page was not there: the fault is tried again */
	/* The last mapping of pages around a fault, which a fault follows if its own was not among them. */
	u64 around_mapping;
	u64 around_start;
	u64 around_end;
	/* What it has brought in since it last read: a write dirties it next. */
	u64 added_mapping;
	struct run added;
	u64 limited; /* reclaims for a cgroup */
};

/* By thread, for as long as it lives. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/*
 * Counts of files. There are two maps: user space reads one while the other is written, and
 * sets the size. Changing a map in a map waits until no program uses the old one (map_update_elem()).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
			__uint(max_entries, 1024);
			__uint(key_size, sizeof(struct pagecache_key));
			__uint(value_size, sizeof(struct pagecache_counts));
		});
} files SEC(".maps");

/* Pages by who removed them, in the same way. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_HASH);
			__uint(max_entries, 1024);
			__uint(key_size, sizeof(struct pagecache_removal));
			__uint(value_size, sizeof(u64));
		});
} removals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PAGECACHE_WAITING);
	__type(key, struct pagecache_key);
	__type(value, struct waiting);
} unasked SEC(".maps");

/* Names of files as they were first seen; read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PAGECACHE_NAMES);
	__type(key, struct pagecache_key);
	__type(value, struct pagecache_name);
} names SEC(".maps");

/* A name that is being read, and whether one is, of each CPU. */
struct scratch {
	u64 busy;
	struct pagecache_name name;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* How many pages of files nobody has asked for, by file_id(): mostly there are none to be looked up. */
u64 waiting_pages[HINTS];

const volatile u32 page_shift = 12;

u64 lost;	  /* pages that were counted for no file */
u64 unattributed; /* pages of which nobody was told who removed them */

/* A read without locks, as everything here: what is renamed meanwhile may have a mixed path. */
static __noinline void read_name(struct pagecache_name *name, struct inode *inode)
{
	struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);
	struct dentry *parent, *dentry;
	u32 bytes = 0;

	name->bytes = 0;
	name->whole = inode->i_sb->s_magic == BDEVFS_MAGIC ? PAGECACHE_DISK : 0;
	if (name->whole || !alias)
		return;
	dentry = dentry_of(alias);
	for (int i = 0; i < PAGECACHE_DEPTH; i++) {
		long n;

		parent = BPF_CORE_READ(dentry, d_parent);
		if (!parent || parent == dentry) {
			name->whole = parent == dentry ? PAGECACHE_WHOLE : 0;
			break;
		}
		barrier_var(bytes);
		if (bytes > PAGECACHE_PATH)
			break;
		n = bpf_probe_read_kernel_str(name->text + bytes, PAGECACHE_COMPONENT,
					      BPF_CORE_READ(dentry, d_name.name));
		if (n <= 0)
			break;
		bytes += n;
		dentry = parent;
	}
	name->bytes = bytes;
}

static __noinline void remember_name(struct pagecache_key *key, struct inode *inode)
{
	struct scratch *s;
	u32 own = 0;

	if (bpf_map_lookup_elem(&names, key))
		return;
	s = bpf_map_lookup_elem(&scratches, &own);
	/* Another program on this CPU may have been interrupted at it: then the name comes when the file is next seen. */
	if (!s || __sync_lock_test_and_set(&s->busy, 1))
		return;
	read_name(&s->name, inode);
	bpf_map_update_elem(&names, key, &s->name, BPF_ANY);
	__sync_lock_test_and_set(&s->busy, 0);
}

/* The counts of a file; NULL: there are too many files. */
static __noinline struct pagecache_counts *counts_of(struct address_space *mapping, struct pagecache_key *key)
{
	struct pagecache_counts none = {}, *c;
	struct inode *inode = mapping->host;
	u32 first = 0;
	void *map;

	key->inode = inode->i_ino;
	key->device = inode->i_sb->s_dev;
	key->generation = inode->i_generation;
	map = bpf_map_lookup_elem(&files, &first);
	if (!map)
		return NULL;
	c = bpf_map_lookup_elem(map, key);
	if (c)
		return c;
	bpf_map_update_elem(map, key, &none, BPF_NOEXIST); /* whoever else does it does the same */
	c = bpf_map_lookup_elem(map, key);
	if (!c)
		return NULL;
	c->stamp_ns = bpf_ktime_get_ns();
	c->cached = mapping->nrpages;
	remember_name(key, inode);
	return c;
}

/* Per-CPU, but what interrupts or preempts a program may count, too. */
static __always_inline void count(u64 *counter, u64 pages)
{
	if (pages)
		__sync_fetch_and_add(counter, pages);
}

static __always_inline struct thread *thread_of(u64 flags)
{
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, flags);
}

static __always_inline u64 file_id(struct pagecache_key *key)
{
	return (key->inode ^ (u64)key->generation << 32 ^ (u64)key->device << 20) * 0x9e3779b97f4a7c15ull;
}

static __always_inline u64 *waiting_of(u64 id)
{
	return &waiting_pages[id >> 52 & (HINTS - 1)];
}

/* Takes what [from, to) has of a run away from it, and what is before; how many pages that were. gone: all of them. */
static __always_inline u64 take(struct run *r, u64 from, u64 to, u64 *gone)
{
	u64 start = r->start, end = r->end;

	if (from < start)
		from = start;
	if (to > end)
		to = end;
	if (from >= to)
		return 0;
	r->start = to;
	*gone += to - start;
	return to - from;
}

/* How many of the pages are asked for the first time since they were brought in. */
static __always_inline u64 first_asked(struct pagecache_key *key, u64 id, u64 from, u64 to)
{
	u64 *waiting = waiting_of(id), pages = 0, gone = 0;
	struct waiting *w;

	if (!*waiting)
		return 0;
	w = bpf_map_lookup_elem(&unasked, key);
	if (!w)
		return 0;
	for (int i = 0; i < RUNS; i++)
		pages += take(&w->runs[i], from, to, &gone);
	if (gone)
		__sync_fetch_and_add(waiting, -gone);
	return pages;
}

/* Remembers that nobody has asked for pages yet. */
static __noinline void brought_in(struct pagecache_key *key, u64 from, u64 to)
{
	struct waiting none = {}, *w = bpf_map_lookup_elem(&unasked, key);
	u64 gone = 0, *waiting = waiting_of(file_id(key));
	int slot = -1;

	if (from >= to)
		return;
	if (!w) {
		bpf_map_update_elem(&unasked, key, &none, BPF_NOEXIST);
		w = bpf_map_lookup_elem(&unasked, key);
		if (!w)
			return;
	}
	/* What was removed before anybody asked for it is not waited for any more. */
	for (int i = 0; i < RUNS; i++)
		take(&w->runs[i], from, to, &gone);
	__sync_fetch_and_add(waiting, to - from - gone);
	for (int i = 0; i < RUNS; i++) {
		if (w->runs[i].end == from && w->runs[i].start != from) {
			w->runs[i].end = to;
			return;
		}
		if (w->runs[i].start == w->runs[i].end)
			slot = i;
	}
	if (slot < 0)
		slot = w->next++;
	slot &= RUNS - 1;
	__sync_fetch_and_add(waiting, w->runs[slot].start - w->runs[slot].end);
	w->runs[slot].start = from;
	w->runs[slot].end = to;
}

/*
 * A part of a read is there: as many pages as were found at once. The last one it asks for
 * stays the same until the end, as filemap_read() and filemap_splice_read() go on from the
 * next. What is past the end of the file is not asked for. A part that ends before a folio that is
 * not read yet is not told of (filemap_get_pages() after EAGAIN, 7.x): all since the last one was read.
 */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(mm_filemap_get_pages, struct address_space *mapping, unsigned long index, unsigned long last)
{
	u64 calls = task_reads(bpf_get_current_task_btf()), id, end, from = index;
	struct pagecache_counts *c;
	struct pagecache_key key;
	struct thread *t;
	s64 size;

	size = mapping->host->i_size;
	end = (u64)(size + (1 << page_shift) - 1) >> page_shift;
	if (size <= 0 || index >= end)
		return 0;
	if (last < end - 1)
		end = last + 1;
	t = thread_of(BPF_LOCAL_STORAGE_GET_F_CREATE);
	c = counts_of(mapping, &key);
	if (!t || !c) {
		count(&lost, end - index);
		return 0;
	}
	id = file_id(&key);
	if (t->read_mapping != id || t->read_last != last || t->read_index >= index || t->read_calls != calls)
		count(&c->lookups, end - index);
	else
		from = t->read_index;
	t->read_mapping = id;
	t->read_index = index;
	t->read_last = last;
	t->read_calls = calls;
	t->added_mapping = 0;
	count(&c->first, first_asked(&key, id, from, end));
	return 0;
}

/* A fault that is tried again, as the page had to be waited for, is the same. */
static __always_inline bool again(struct thread *t, u64 mapping, u64 start, u64 end)
{
	if (!t->fault_missed || t->fault_mapping != mapping || t->fault_index < start || t->fault_index > end)
		return false;
	t->fault_missed = 0;
	return true;
}

/* Pages that are there were mapped around a fault, and mostly its own: a lookup of one page. */
SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(mm_filemap_map_pages, struct address_space *mapping, unsigned long start, unsigned long end)
{
	struct thread *t = thread_of(BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 id;
	struct pagecache_counts *c;
	struct pagecache_key key;

	c = counts_of(mapping, &key);
	if (!t || !c) {
		count(&lost, 1);
		return 0;
	}
	id = file_id(&key);
	if (again(t, id, start, end)) {
		t->fault_mapping = 0;
		return 0;
	}
	count(&c->lookups, 1);
	t->around_mapping = id;
	t->around_start = start;
	t->around_end = end;
	return 0;
}

/* A fault asks for one page, before anything is done about it. */
SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(mm_filemap_fault, struct address_space *mapping, unsigned long index)
{
	struct thread *t = thread_of(BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 id;
	struct pagecache_counts *c;
	struct pagecache_key key;
	bool counted;

	c = counts_of(mapping, &key);
	if (!t || !c) {
		count(&lost, 1);
		return 0;
	}
	id = file_id(&key);
	counted = again(t, id, index, index);
	if (t->around_mapping == id && t->around_start <= index && index <= t->around_end)
		counted = true;
	t->around_mapping = 0;
	t->fault_mapping = id;
	t->fault_index = index;
	t->fault_missed = 0;
	t->added_mapping = 0;
	if (counted)
		return 0;
	count(&c->lookups, 1);
	count(&c->first, first_asked(&key, id, index, index + 1));
	return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(mm_filemap_add_to_page_cache, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	u64 pages = folio_pages(folio), index = folio->index, id;
	struct thread *t = thread_of(BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct pagecache_counts *c;
	struct pagecache_key key;

	c = counts_of(mapping, &key);
	if (!t || !c) {
		count(&lost, pages);
		return 0;
	}
	id = file_id(&key);
	count(&c->added, pages);
	c->stamp_ns = bpf_ktime_get_ns();
	c->cached = mapping->nrpages; /* with this one: see __filemap_add_folio() */
	if (t->added_mapping != id || t->added.end != index) {
		t->added_mapping = id;
		t->added.start = index;
	}
	t->added.end = index + pages;
	if (t->fault_mapping != id || t->fault_missed || t->fault_index - index >= pages) {
		brought_in(&key, index, index + pages);
		return 0;
	}
	t->fault_missed = 1; /* it has asked for one of them */
	count(&c->first, 1);
	brought_in(&key, index, t->fault_index);
	brought_in(&key, t->fault_index + 1, index + pages);
	return 0;
}

/* A folio of which no page was dirty. What a write brings in, it dirties next; a fault brings in what may be written. */
SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(writeback_dirty_folio, struct folio *folio, struct address_space *mapping)
{
	u64 pages = folio_pages(folio), index = folio->index, id, written, gone = 0;
	struct thread *t = thread_of(0);
	struct pagecache_counts *c;
	struct pagecache_key key;

	if (!mapping) /* the verifier of 6.13 and later holds it possible */
		return 0;
	c = counts_of(mapping, &key);
	if (!c) {
		count(&lost, pages);
		return 0;
	}
	count(&c->dirtied, pages);
	if (!t)
		return 0;
	id = file_id(&key);
	if (t->added_mapping != id || (t->fault_mapping == id && t->fault_index - index < pages))
		return 0;
	written = take(&t->added, index, index + pages, &gone);
	if (!written)
		return 0;
	first_asked(&key, id, index, index + pages);
	count(&c->written, written);
	return 0;
}

static __always_inline u32 how_removed(struct task_struct *p, struct inode *inode, u64 index)
{
	struct thread *t;

	if (p->flags & PF_KSWAPD)
		return PAGECACHE_KSWAPD;
	if (task_reclaims(p)) {
		t = thread_of(0);
		return t && t->limited ? PAGECACHE_CGROUP_RECLAIM : PAGECACHE_DIRECT_RECLAIM;
	}
	if (p->flags & PF_MEMALLOC) /* reclaim_pages() */
		return PAGECACHE_PAGEOUT;
	if (!inode->i_nlink)
		return PAGECACHE_UNLINK;
	/* The file is shortened before its pages go (truncate_setsize()). */
	if (index << page_shift >= (u64)inode->i_size)
		return PAGECACHE_TRUNCATE;
	return PAGECACHE_INVALIDATE;
}

/* NULL: there are too many. */
static __always_inline u64 *removal(void *map, struct pagecache_removal *who)
{
	u64 none = 0, *n = bpf_map_lookup_elem(map, who);

	if (n)
		return n;
	bpf_map_update_elem(map, who, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, who);
}

static __always_inline void removed_by(struct task_struct *p, struct pagecache_removal *who, u64 pages)
{
	u32 first = 0;
	void *map = bpf_map_lookup_elem(&removals, &first);
	u64 *n;

	if (!map)
		return;
	who->pid = p->tgid;
	who->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(who->comm, sizeof(who->comm));
	account_refer(p, &who->by);
	n = removal(map, who);
	if (!n && who->by.serial) { /* rather whoever it was than nobody */
		__builtin_memset(&who->by, 0, sizeof(who->by));
		n = removal(map, who);
	}
	count(n ?: &unattributed, pages);
}

/* Before the page goes, so the kernel's own count of pages still has it, and the others of a batch. */
SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(mm_filemap_delete_from_page_cache, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	u64 pages = folio_pages(folio), index = folio->index, now, found;
	struct task_struct *p = bpf_get_current_task_btf();
	struct pagecache_removal who = {};
	struct inode *inode = mapping->host;
	struct pagecache_counts *c;

	if (inode->i_sb->s_magic == TMPFS_MAGIC) /* whose pages come in without a word: shmem_add_to_page_cache() */
		return 0;
	who.how = how_removed(p, inode, index);
	c = counts_of(mapping, &who.file);
	if (!c) {
		count(&lost, pages);
		return 0;
	}
	count(who.how < PAGECACHE_TRUNCATE ? &c->evicted : &c->removed, pages);
	now = bpf_ktime_get_ns();
	found = mapping->nrpages;
	if (who.how < PAGECACHE_INVALIDATE || found != c->found || now - c->stamp_ns > BATCH_NS)
		c->batch = 0;
	c->batch += pages;
	c->found = found;
	c->cached = found - c->batch;
	c->stamp_ns = now;
	who.owner = folio_owner(folio);
	removed_by(p, &who, pages);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(mm_vmscan_memcg_reclaim_begin)
{
	struct thread *t = thread_of(BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (t)
		t->limited = 1;
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(mm_vmscan_memcg_reclaim_end)
{
	struct thread *t = thread_of(0);

	if (t)
		t->limited = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
