//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * One program a hook. Each reads the clock once, writes its record, and calls
 * the parts that the loaded rules need; the verifier removes the others.
 */
#include "kernel.h"

#include "abi/chain.h"
#include "abi/counters.h"
#include "abi/histogram.h"
#include "abi/message.h"
#include "abi/outlier.h"
#include "abi/pair.h"
#include "abi/record.h"
#include "abi/recorder.h"
#include "abi/rule.h"
#include "abi/span.h"
#include "abi/table.h"
#include "block.h"
#include "histogram.h"
#include "chain_task.h"
#include "interrupts.h"
#include "kvm.h"
#include "lock.h"
#include "memory.h"
#include "net.h"
#include "power.h"
#include "recorder.h"
#include "sched.h"
#include "span.h"
#include "state.h"
#include "steal.h"
#include "switch_state.h"
#include "syscall.h"
#include "throttle.h"
#include "work.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Keep the types that Go needs in the object's BTF. */

#define track_tasks (track_wakeup || track_offcpu)

/* ------------------------------------------------------------------ sched */

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_sched) {
		struct record r;

		steal_look(ctx, prev, this_cpu(cpu), cpu, now);
		record_head(&r, REC_SWITCH, cpu, prev->pid, now);
		COPY_COMM(r.sw.prev_comm, prev);
		COPY_COMM(r.sw.next_comm, next);
		r.sw.next_tid = next->pid;
		r.sw.next_pid = next->tgid;
		r.sw.prev_prio = prev->prio;
		r.sw.next_prio = next->prio;
		r.sw.prev_state = switch_state(prev, preempt, prev_state);
		record(ctx, &r);
	}
	if (track_syscall && progress_stacks)
		progress_note(ctx, prev, prev_state, now);
	if (track_tasks || track_chain) {
		struct cpu_state *me = this_cpu(cpu);

		if (user_stacks_later && me)
			user_stack_now(ctx, prev, me);
		if (track_tasks) {
			sched_leave(prev, preempt, prev_state, cpu, me, now);
			sched_arrive(next, cpu, me, now);
		}
		if (track_chain) {
			chain_leave(ctx, prev, preempt, prev_state, cpu, me, now);
			chain_arrive(ctx, next, cpu, me, now);
		}
		if (me)
			run_history(prev, next, me, now);
	}
	return 0;
}

static __always_inline void record_wake(void *ctx, u16 type, struct task_struct *p, u32 cpu, u64 now)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct record r = {};

	record_head(&r, type, cpu, waker->pid, now);
	COPY_COMM(r.wake.comm, p);
	r.wake.tid = p->pid;
	r.wake.pid = p->tgid;
	r.wake.prio = p->prio;
	r.wake.target_cpu = p->thread_info.cpu;
	record(ctx, &r);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_sched)
		record_wake(ctx, REC_WAKING, p, cpu, now);
	if (track_tasks)
		sched_wake(ctx, p, cpu, now);
	if (track_chain)
		chain_wake(p, cpu, now);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_sched)
		record_wake(ctx, REC_WAKEUP_NEW, p, cpu, now);
	if (track_wakeup)
		sched_wake_new(ctx, p, cpu, now);
	if (track_chain)
		chain_wake(p, cpu, now);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_sched) {
		struct task_struct *current = bpf_get_current_task_btf();
		struct record r = {};

		record_head(&r, REC_MIGRATE, cpu, current->pid, now);
		COPY_COMM(r.migrate.comm, p);
		r.migrate.tid = p->pid;
		r.migrate.prio = p->prio;
		r.migrate.orig_cpu = p->thread_info.cpu;
		r.migrate.dest_cpu = dest;
		record(ctx, &r);
	}
	if (track_wakeup)
		sched_move(p, dest, now);
	return 0;
}

/* ---------------------------------------------------------------- process */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct record r;

	record_begin(&r, REC_FORK);
	COPY_COMM(r.process.comm, parent);
	COPY_COMM(r.process.child_comm, child);
	r.process.pid = parent->tgid;
	r.process.child_tid = child->pid;
	r.process.child_pid = child->tgid;
	r.process.prio = child->prio;
	record(ctx, &r);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p, int old_tid)
{
	if (record_process) {
		struct record r;

		record_begin(&r, REC_EXEC);
		COPY_COMM(r.process.comm, p);
		r.process.pid = p->tgid;
		r.process.child_tid = old_tid;
		r.process.prio = p->prio;
		record(ctx, &r);
	}
	if (track_syscall && old_tid != p->pid)
		call_renamed(old_tid, p->pid, this_cpu(bpf_get_smp_processor_id()));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	if (record_process) {
		struct record r;

		record_begin(&r, REC_EXIT);
		COPY_COMM(r.process.comm, p);
		r.process.pid = p->tgid;
		r.process.prio = p->prio;
		record(ctx, &r);
	}
	if (track_syscall)
		call_dies(p->pid, this_cpu(bpf_get_smp_processor_id()));
	return 0;
}

/* --------------------------------------------------------------- syscalls */

static __always_inline void record_call(struct record *r, u16 type, struct task_struct *current, u32 cpu, u32 nr,
					u64 now)
{
	__builtin_memset(r, 0, sizeof(*r));
	record_head(r, type, cpu, current->pid, now);
	r->syscall.nr = nr;
	r->syscall.pid = current->tgid;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, void *regs, long nr)
{
	bool wanted = track_syscall && syscall_wanted(nr);
	struct task_struct *current;
	u32 cpu;
	u32 span = 0;
	u64 now;

	if (track_span && nr == SPAN_SYSCALL)
		span = span_op(regs);
	if (!wanted && !record_syscall && !span)
		return 0;
	current = bpf_get_current_task_btf();
	cpu = bpf_get_smp_processor_id();
	now = bpf_ktime_get_ns();
	if (record_syscall) {
		struct record r;

		record_call(&r, REC_SYSCALL_ENTRY, current, cpu, nr, now);
		trusted_args(regs, r.syscall.args);
		record(ctx, &r);
	}
	if (wanted)
		syscall_begin(current, nr, now, cpu, this_cpu(cpu));
	if (span)
		span_event(ctx, regs, current, span, now, cpu, this_cpu(cpu));
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, void *regs, long ret)
{
	s32 nr = trusted_syscall(regs);
	bool wanted = track_syscall && syscall_wanted(nr);
	struct task_struct *current;
	u32 cpu;
	u64 now;

	if (user_stacks_later) {
		struct cpu_state *me = this_cpu(bpf_get_smp_processor_id());

		if (me && me->later_time_ns)
			user_stack_now(ctx, bpf_get_current_task_btf(), me);
	}
	if (!wanted && !record_syscall && !chain_user)
		return 0;
	current = bpf_get_current_task_btf();
	cpu = bpf_get_smp_processor_id();
	if (chain_user && !chain_returns(current, cpu) && !wanted && !record_syscall)
		return 0;
	now = bpf_ktime_get_ns();
	if (chain_user)
		chain_return(ctx, current, cpu, now);
	if (!wanted && !record_syscall)
		return 0;
	if (record_syscall) {
		struct record r;

		record_call(&r, REC_SYSCALL_EXIT, current, cpu, nr, now);
		r.syscall.ret = ret;
		record(ctx, &r);
	}
	if (wanted)
		syscall_end(ctx, current, nr, ret, now, cpu, this_cpu(cpu));
	return 0;
}

/* ------------------------------------------------------------------ block */

static __always_inline void record_request(void *ctx, u16 type, struct request *rq, u32 bytes, int error, u32 cpu,
					   u64 now)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct record r;

	record_head(&r, type, cpu, current->pid, now);
	r.block.rq = (u64)rq;
	r.block.sector = rq->__sector;
	r.block.dev = request_dev(rq);
	r.block.bytes = bytes;
	r.block.cmd_flags = rq->cmd_flags;
	r.block.error = error;
	COPY_COMM(r.block.comm, current);
	record(ctx, &r);
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *rq)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_block)
		record_request(ctx, REC_BLOCK_INSERT, rq, rq->__data_len, 0, cpu, now);
	if (track_block)
		block_insert(rq, this_cpu(cpu), now);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_block)
		record_request(ctx, REC_BLOCK_ISSUE, rq, rq->__data_len, 0, cpu, now);
	if (track_block)
		block_issue(rq, cpu, this_cpu(cpu), now);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, u8 error, unsigned int bytes)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_block)
		record_request(ctx, REC_BLOCK_COMPLETE, rq, bytes, error, cpu, now);
	if (track_block)
		block_complete(rq, error, bytes, cpu, this_cpu(cpu), now);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(block_rq_requeue, struct request *rq)
{
	block_requeue(rq);
	return 0;
}

SEC("tp_btf/block_rq_merge")
int BPF_PROG(block_rq_merge, struct request *rq)
{
	block_merge(rq);
	return 0;
}

/* ------------------------------------------- called by the daemon (test_run) */

/* Freezes as an outlier does; returns 1 if this call did it. */
SEC("syscall")
int freeze_now(void *ctx)
{
	return freeze(bpf_ktime_get_ns());
}

/* The thread is gone, and its last switch was not seen: nothing of it may stay. */
SEC("syscall")
int forget_thread(struct forget *ctx)
{
	struct cpu_state *me = this_cpu(bpf_get_smp_processor_id());

	if (track_tasks && task_dies(ctx->tid) && me)
		__sync_fetch_and_add(&me->reclaimed, 1);
	if (track_syscall)
		call_dies(ctx->tid, me);
	if (track_chain && chain_dies(ctx->tid) && me)
		__sync_fetch_and_add(&me->reclaimed, 1);
	return 0;
}

/* What user space does with a ratchet; 1: the delay is a record. */
SEC("syscall")
int ratchet(struct ratchet_call *ctx)
{
	u32 id = ctx->id;
	struct rule_state *state = bpf_map_lookup_elem(&rule_states, &id);

	if (!state)
		return 0;
	if (ctx->delay_ns)
		return ratchet_claim(state, ctx->delay_ns);
	state->record_ns = 0;
	return 0;
}

/* The exit of a declared pair's work cannot come, or has not for long; 1: forgotten. */
SEC("syscall")
int forget_pair(struct forget_pair *ctx)
{
	return pair_forget(ctx->index, ctx->start_ns);
}

/* Nobody has ended a span for too long; 1: its place is free. */
SEC("syscall")
int expire_span_at(struct span_old *ctx)
{
	return track_span && span_expire(ctx->index, ctx->start_ns, this_cpu(bpf_get_smp_processor_id()));
}

/* The bucket of a value: tests hold it against the daemon's own idea of it. */
SEC("syscall")
int histogram_bucket(struct bucket_of *ctx)
{
	return histogram_bucket_of(ctx->value);
}

/* Where one task is, for kernels whose tick cannot tell: user space reads a struct task_stack. */
SEC("iter/task")
int stack_of_task(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_stack *s;
	u32 zero = 0;
	long size;

	if (!p)
		return 0;
	s = bpf_map_lookup_elem(&task_stacks, &zero);
	if (!s)
		return 0;
	size = bpf_get_task_stack(p, s->kernel, sizeof(s->kernel), 0);
	s->frames = size > 0 ? size / sizeof(u64) : 0;
	bpf_seq_write(ctx->meta->seq, s, sizeof(*s));
	return 0;
}

/* Everything before that many freezes has been read: it may be overwritten, and the next outlier may freeze. */
SEC("syscall")
int release_bank(struct release *ctx)
{
	if (record_mmap) {
		recorder.released = ctx->freezes;
		return 0;
	}
	recorder.frozen_ns = 0;
	__sync_lock_test_and_set(&recorder.frozen, 0);
	return 0;
}
