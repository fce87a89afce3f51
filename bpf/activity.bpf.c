//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Activities: what each token costs and waits for. Loaded when activities.enabled, and
 * attached by group; shares nothing with the trackers' object.
 */
#include "accounts/block.h"
#include "accounts/evicted.h"
#include "accounts/interrupt.h"
#include "accounts/lock.h"
#include "accounts/memory.h"
#include "accounts/network.h"
#include "accounts/pagecache.h"
#include "accounts/sched.h"
#include "accounts/syscall.h"
#include "accounts/workqueue.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ------------------------------------------------------------- scheduler */

SEC("tp_btf/sched_switch")
int BPF_PROG(activity_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	bool leaves = account_may(prev), comes = account_may(next), works = account_works(prev, next);
	u64 now;

	if (!leaves && !comes && !works)
		return 0;
	now = bpf_ktime_get_ns();
	if (works)
		account_work_switch(prev, next, now);
	if (leaves)
		account_switch_out(prev, preempt, prev_state, now);
	if (comes)
		account_switch_in(next, now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(activity_waking, struct task_struct *p)
{
	account_waking(bpf_get_current_task_btf(), p);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(activity_fork, struct task_struct *parent, struct task_struct *child)
{
	account_fork(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(activity_exec, struct task_struct *p)
{
	if (!account_may(p))
		return 0;
	account_leave(p);
	bpf_task_storage_delete(&activity_owners, p);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(activity_exit, struct task_struct *p)
{
	account_leave(p);
	return 0;
}

/* ------------------------------------------------------------------ block */

SEC("tp_btf/block_bio_queue")
int BPF_PROG(block_bio_queue, struct bio *bio)
{
	bio_queued(bio);
	return 0;
}

/* The first part of a bio that is too large for one request: the rest stays in its place. */
SEC("tp_btf/block_split")
int BPF_PROG(block_split, struct bio *bio)
{
	bio_queued(bio);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	request_issued(rq);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, u8 error, unsigned int bytes)
{
	request_completed(rq, bytes);
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(writeback_dirty_folio, struct folio *folio, struct address_space *mapping)
{
	if (!mapping) /* 6.18+: the verifier knows that it may be */
		return 0;
	if (account_block)
		file_dirtied(mapping);
	if (account_pagecache)
		cache_dirtied(folio, mapping);
	return 0;
}

SEC("tp_btf/writeback_single_inode_start")
int BPF_PROG(writeback_single_inode_start, struct inode *inode)
{
	file_write_begins(inode);
	return 0;
}

SEC("tp_btf/writeback_single_inode")
int BPF_PROG(writeback_single_inode, struct inode *inode, struct writeback_control *control)
{
	file_write_ends(inode, control);
	return 0;
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(io_uring_queue_async_work, struct io_kiocb *req)
{
	io_queued(req);
	return 0;
}

/* ----------------------------------------------------------------- memory */

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user)
{
	fault_begins();
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_kernel)
{
	fault_begins();
	return 0;
}

/* Software events, on each CPU: a fault is over. */
SEC("perf_event")
int fault_minor(void *ctx)
{
	fault_ends(ACTIVITY_FAULTS_MINOR);
	return 0;
}

SEC("perf_event")
int fault_major(void *ctx)
{
	fault_ends(ACTIVITY_FAULTS_MAJOR);
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(mm_page_alloc, void *page, unsigned int order)
{
	pages_allocated((u64)page, order);
	return 0;
}

/* -------------------------------------------------------------- pagecache */

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(mm_filemap_add_to_page_cache, struct folio *folio)
{
	cache_add(folio);
	evicted_back(folio);
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(mm_filemap_delete_from_page_cache, struct folio *folio)
{
	cache_removed(folio);
	evicted_note(folio);
	return 0;
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(mm_filemap_get_pages, struct address_space *mapping, unsigned long index, unsigned long last)
{
	cache_read(mapping, index, last);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(mm_filemap_fault, struct address_space *mapping, unsigned long index)
{
	cache_fault(mapping, index, index + 1, index + 1);
	return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(mm_filemap_map_pages, struct address_space *mapping, unsigned long first, unsigned long last)
{
	cache_fault(mapping, first, last + 1, 0);
	return 0;
}

/* ---------------------------------------------------------------- network */

SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk, int bytes)
{
	tcp_sent(sk, bytes);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_recv_length, struct sock *sk, int bytes, int flags)
{
	tcp_received(sk, bytes, flags);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb, struct sock *sk)
{
	tcp_retransmitted(sk);
	return 0;
}

/* ------------------------------------------------------------- workqueues */

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(workqueue_queue_work, int asked_cpu, struct pool_workqueue *pwq, struct work_struct *work)
{
	account_work_queued(work);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work)
{
	account_work_starts(work);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(workqueue_execute_end, struct work_struct *work)
{
	account_work_ends(work);
	return 0;
}

/* --------------------------------------------------------------- syscalls */

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter)
{
	call_begins();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit)
{
	call_ends();
	return 0;
}

/* ------------------------------------------------------------------ locks */

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	lock_begins((u64)lock, flags);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock)
{
	lock_ends((u64)lock);
	return 0;
}

/* ------------------------------------------------------------- interrupts */

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry)
{
	interrupt_begins();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit)
{
	interrupt_ends();
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry)
{
	interrupt_begins();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit)
{
	interrupt_ends();
	return 0;
}

/* --------------------------------------------------------------- control */

/* The daemon's word to a process, whose header user space cannot write any more. */
SEC("syscall")
int activity_publish(struct activity_publication *to)
{
	u32 number = to->process;
	struct activity_header *header;
	void *accounts = bpf_map_lookup_elem(&activity_accounts, &number);

	if (!accounts)
		return -1;
	header = account_element(accounts, 0);
	if (!header)
		return -1;
	header->slow_ns = to->slow_ns;
	return 0;
}
