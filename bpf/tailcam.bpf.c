//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * One program a hook. Each reads the clock once, writes its record, and calls
 * the parts that the loaded rules need; the verifier removes the others.
 */
#include "recorder/events.h"
#include "recorder/file_lock.h"
#include "recorder/lock.h"
#include "recorder/names.h"
#include "recorder/sched.h"
#include "recorder/softirq.h"
#include "recorder/stack.h"
#include "recorder/steal.h"
#include "tick.h"
#include "trackers/block_shed.h"
#include "trackers/chain.h"
#include "trackers/sched_shed.h"
#include "trackers/syscall_thread.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Keep the types that Go needs in the object's BTF. */

#define track_tasks (track_wakeup || track_offcpu)

/* ------------------------------------------------------------------ sched */

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 prev_tid = prev->pid, next_tid = next->pid;
	struct cpu_state *me = this_cpu(cpu);
	u64 now;

	if (track_tasks && !track_chain && wakers_shed) {
		if (me) {
			shed_switch_out(prev, prev_tid, preempt, prev_state, cpu, me);
			shed_switch_in(next, next_tid, me);
		}
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (record_sched) {
		steal_sample(ctx, prev, me, cpu, now);
		record_switch(ctx, prev, prev_tid, next, next_tid, preempt, prev_state, cpu, now);
	}
	if (track_syscall && progress_stacks)
		progress_note(ctx, prev, prev_state, now);
	if (track_tasks || track_chain || record_run) {
		if (me)
			run_ends(prev_tid, me);
		if (track_tasks) {
			if (thread_contexts && me)
				context_of_run(prev, prev_tid, me, now);
			sched_switch_out(prev, prev_tid, preempt, prev_state, cpu, me, now);
			sched_switch_in(ctx, next, next_tid, me, now);
		}
		if (track_chain) {
			chain_switch_out(ctx, prev, preempt, prev_state, cpu, me, now);
			chain_switch_in(ctx, next, cpu, me, now);
		}
		if (me)
			run_begins(next, next_tid, me, now);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	u32 context = interrupt_works(waker, cpu);

	if (record_sched)
		record_wake(ctx, REC_WAKING, p, waker, context, cpu, now);
	if (track_tasks)
		sched_wake(ctx, p, waker, context, cpu, now);
	if (record_run)
		run_wakes(context, cpu, now);
	if (track_chain)
		chain_wake(p, cpu, now);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	u32 context = interrupt_works(waker, cpu);

	if (record_sched)
		record_wake(ctx, REC_WAKEUP_NEW, p, waker, context, cpu, now);
	if (track_wakeup)
		sched_wake_new(ctx, p, waker, context, cpu, now);
	if (track_chain)
		chain_wake(p, cpu, now);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int dest)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_sched)
		record_migrate(ctx, p, dest, cpu, now);
	if (track_wakeup)
		sched_migrate(p, dest, now);
	return 0;
}

/* ---------------------------------------------------------------- process */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	if (record_sched)
		name_fork(child, bpf_ktime_get_ns());
	if (record_process)
		record_fork(ctx, parent, child);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *p, const char *comm)
{
	name_rename(p, comm, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p, int old_tid)
{
	if (record_sched && old_tid != p->pid)
		name_end(old_tid);
	if (record_process)
		record_process_event(ctx, REC_EXEC, p, old_tid);
	if (track_syscall && old_tid != p->pid)
		call_renamed(old_tid, p->pid, this_cpu(bpf_get_smp_processor_id()));
	if (track_syscall && !calls_by_tracepoint)
		narrow_seen(p);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	if (record_sched)
		name_end(p->pid);
	if (record_process)
		record_process_event(ctx, REC_EXIT, p, 0);
	if (track_syscall)
		call_forget_thread(p->pid, this_cpu(bpf_get_smp_processor_id()));
	return 0;
}

/* ---------------------------------------------------------------- syscall */

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, void *regs, long nr)
{
	u32 wanted = calls_by_tracepoint ? syscall_bits(nr) : 0;
	struct task_struct *current;
	u32 cpu, span = 0;
	bool compat;
	u64 now;

	if (track_span && nr == SPAN_SYSCALL)
		span = span_op(regs);
	if (!wanted && !record_syscall && !span)
		return 0;
	current = bpf_get_current_task_btf();
	compat = (wanted || record_syscall) && task_compat(current, regs);
	wanted &= compat ? CALL_ENTRY_32 : CALL_ENTRY;
	if (!wanted && !record_syscall && !span)
		return 0;
	cpu = bpf_get_smp_processor_id();
	now = bpf_ktime_get_ns();
	if (record_syscall)
		record_syscall_entry(ctx, current, regs, compat, cpu, nr, now);
	if (wanted)
		syscall_entry(current, compat ? nr + SYSCALLS_32 : nr, now, cpu, this_cpu(cpu));
	if (span)
		span_event(ctx, regs, current, span, now, cpu, this_cpu(cpu));
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, void *regs, long ret)
{
	s32 nr = trusted_syscall(regs);
	u32 wanted = calls_by_tracepoint ? syscall_bits(nr) : 0;
	struct task_struct *current;
	u32 cpu;
	u64 now;

	if (!wanted && !record_syscall && !chain_user)
		return 0;
	current = bpf_get_current_task_btf();
	if (wanted && !(wanted & CALL_EXIT))
		wanted = task_compat(current, regs) ? wanted & CALL_EXIT_32 : 0;
	if (!wanted && !record_syscall && !chain_user)
		return 0;
	barrier_var(wanted); /* otherwise all that follows is there twice */
	cpu = bpf_get_smp_processor_id();
	if (chain_user && !chain_returns(current, cpu) && !wanted && !record_syscall)
		return 0;
	now = bpf_ktime_get_ns();
	if (chain_user)
		chain_return(ctx, current, cpu, now);
	if (!wanted && !record_syscall)
		return 0;
	if (record_syscall)
		record_syscall_exit(ctx, current, ret, cpu, syscall_of(nr, task_compat(current, regs)), now);
	if (wanted)
		syscall_exit(ctx, current, nr, ret, now, cpu, this_cpu(cpu));
	return 0;
}

/*
 * Where tasks are preempted in programs at tracepoints, the kernel skips one that another
 * task is in on the same CPU (__bpf_trace_run() in kernel/trace/bpf_trace.c; preempted since
 * commit a46023d5616e, 7.0). What ended unseen would stay pending, and be told as stuck. So
 * there each end has a second program, of which the kernel skips its own runs alone: it
 * forgets what the first has left. The two are in each other's way if both were preempted.
 */
SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit_skipped, void *regs, long ret)
{
	if (calls_by_tracepoint && syscall_bits(trusted_syscall(regs)))
		syscall_skipped(bpf_get_current_task_btf(), this_cpu(bpf_get_smp_processor_id()));
	return 0;
}

/* ------------------------------------------------------------------ block */

SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *rq)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();

	if (record_block)
		record_request(ctx, REC_BLOCK_INSERT, rq, rq->__data_len, 0, cpu, now);
	if (track_block)
		block_insert(rq, cpu, this_cpu(cpu), now);
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
	u32 cpu = bpf_get_smp_processor_id();
	u64 now;

	if (track_block && askers_shed) {
		shed_complete(rq, error, bytes, cpu, this_cpu(cpu));
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (record_block) {
		record_request(ctx, REC_BLOCK_COMPLETE, rq, bytes, error, cpu, now);
		interrupt_works(bpf_get_current_task_btf(), cpu);
	}
	if (track_block)
		block_complete(rq, error, bytes, cpu, this_cpu(cpu), now);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete_skipped, struct request *rq, u8 error, unsigned int bytes)
{
	if (track_block)
		block_skipped(rq, bytes, this_cpu(bpf_get_smp_processor_id()));
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

/* ------------------------------------------------------------- interrupts */

/*
 * The recorder, the trackers irq, softirq and chain want them, and of timers the
 * tick as well. A run is noted in its CPU's slots, so that what it wakes is not
 * put down to the task that it interrupts, and has one record, at its end.
 */
SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq, struct irqaction *action)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct interrupt_slots *mine = interrupts_of(cpu);
	u64 now = bpf_ktime_get_ns();

	if (mine)
		interrupt_entry(mine->irq, irq, bpf_get_current_task_btf(), action, TRACK_IRQ,
				track_irq ? this_cpu(cpu) : NULL, now);
	if (track_chain)
		chain_irq_entry(cpu, irq, action, now);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq, struct irqaction *action, int ret)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct interrupt_slots *mine = interrupts_of(cpu);
	struct interrupt_slot *slot = mine ? interrupt_find(mine->irq, irq) : NULL;
	u64 now = bpf_ktime_get_ns();

	if (slot) {
		mine->softirq[0].irq_end_ns = now;
		mine->softirq[0].irq_ended = irq;
		if (record_irq)
			record_irq_run(ctx, mine, slot, current, irq, ret, action, cpu, now);
		if (track_irq)
			irq_exit(ctx, irq, action, slot, current, cpu, now);
		else
			slot->start_ns = 0;
	}
	if (track_chain)
		chain_irq_exit(cpu);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct interrupt_slots *mine = interrupts_of(cpu);
	u64 now = bpf_ktime_get_ns();
	struct interrupt_slot *slot;

	vec &= SOFTIRQS - 1;
	if (mine) {
		slot = interrupt_entry(mine->softirq, softirq_key(vec, current), current, NULL, TRACK_SOFTIRQ,
				       track_softirq ? this_cpu(cpu) : NULL, now);
		if (slot)
			softirq_raised_by(mine, slot, now);
		if (track_softirq_raise)
			softirq_run_entry(ctx, vec, mine, current, cpu, now);
	}
	if (track_chain)
		chain_softirq_entry(vec, current->pid, cpu, now);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct interrupt_slots *mine = interrupts_of(cpu);
	u64 now = bpf_ktime_get_ns();
	struct interrupt_slot *slot;

	vec &= SOFTIRQS - 1;
	slot = mine ? interrupt_find(mine->softirq, softirq_key(vec, current)) : NULL;
	if (slot) {
		softirq_raises(mine, slot, now);
		if (record_irq)
			record_softirq_run(ctx, mine, slot, current, vec, cpu, now);
		if (track_softirq)
			softirq_delay(ctx, vec, PHASE_RUN, slot, current, cpu, now);
		else
			slot->start_ns = 0;
	}
	if (track_chain)
		chain_softirq_exit(cpu);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit_skipped, unsigned int vec)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct interrupt_slots *mine = interrupts_of(cpu);
	struct interrupt_slot *slot;

	slot = mine ? interrupt_find(mine->softirq, softirq_key(vec & (SOFTIRQS - 1), current)) : NULL;
	if (slot)
		interrupt_skipped(slot, TRACK_SOFTIRQ, track_softirq ? this_cpu(cpu) : NULL);
	return 0;
}

/* Only for rules on how long softirqs wait, and for chains: the recorder has no use for it. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vec)
{
	if (track_softirq_raise)
		softirq_wait_entry(vec);
	if (track_chain) {
		u32 cpu = bpf_get_smp_processor_id();

		chain_softirq_raise(vec, cpu, this_cpu(cpu), bpf_ktime_get_ns());
	}
	return 0;
}

/* x86 alone has it. The daemon is woken from here: see lib/stacks.h. */
SEC("tp_btf/irq_work_entry")
int BPF_PROG(irq_work_entry, int vector)
{
	struct cpu_state *me = this_cpu(bpf_get_smp_processor_id());

	if ((user_stacks_later || thread_contexts_later) && me)
		user_resolve(bpf_get_current_task_btf(), me);
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_expire_entry, struct hrtimer *timer, s64 *expires)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();

	if (record_timer || track_chain) { /* not with the tick alone: its end would not be seen */
		struct task_struct *current = bpf_get_current_task_btf();
		struct cpu_state *me = this_cpu(cpu);

		if (me) {
			me->hrtimer_tid = current->pid;
			me->in_hrtimer = HRTIMER_EXPIRES;
		}
		if (record_timer)
			record_hrtimer_entry(ctx, timer, expires, current, me, cpu, now);
	}
	if (track_chain)
		chain_timer_entry(cpu, timer, now);
	if (timeouts)
		tick(now, cpu);
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_expire_exit, struct hrtimer *timer)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *me = this_cpu(cpu);
	u64 now = bpf_ktime_get_ns();
	bool worked = false;

	if (me) {
		worked = me->in_hrtimer == HRTIMER_WORKED;
		me->in_hrtimer = 0;
	}
	/* What follows of the group sched, and run: the tick is such a timer. */
	if (record_sched)
		steal_sample(ctx, current, me, cpu, now);
	if (record_run && me && run_is_due(current, me, now))
		record_run_stack(ctx, current, me, now);
	if (record_timer)
		record_hrtimer_exit(ctx, timer, current, me, worked, cpu, now);
	if (record_sched && softirqs_unhooked && me)
		softirq_sample(ctx, current, me, now);
	if (track_chain)
		chain_timer_exit(cpu);
	return 0;
}

/* --------------------------------- what the recorder alone wants, by group */

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(timer_expire_entry, struct timer_list *timer, unsigned long now)
{
	return record_timer_entry(ctx, timer, now);
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(timer_expire_exit, struct timer_list *timer)
{
	return record_timer_exit(ctx, timer);
}

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(workqueue_queue_work, int req_cpu, struct pool_workqueue *pwq, struct work_struct *work)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 context = interrupt_works(current, bpf_get_smp_processor_id());

	if (record_workqueue)
		record_work_queue(ctx, req_cpu, pwq, work, context);
	if (track_workqueue)
		work_queued(pwq, work, current, context);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(workqueue_execute_start, struct work_struct *work)
{
	if (record_workqueue)
		record_work_start(ctx, work);
	if (track_workqueue)
		work_started(work);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(workqueue_execute_end, struct work_struct *work)
{
	if (record_workqueue)
		record_work_end(ctx, work);
	if (track_workqueue)
		work_ended(work);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(workqueue_execute_end_skipped, struct work_struct *work)
{
	if (track_workqueue)
		work_skipped(work, this_cpu(bpf_get_smp_processor_id()));
	return 0;
}

/* x86 alone has these two. */
SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address, void *regs, unsigned long code)
{
	return record_fault(ctx, REC_FAULT_USER, address, regs, code);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_kernel, unsigned long address, void *regs, unsigned long code)
{
	return record_fault(ctx, REC_FAULT_KERNEL, address, regs, code);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(direct_reclaim_begin, int order)
{
	return record_reclaim(ctx, REC_RECLAIM_BEGIN, RECLAIM_DIRECT, order, 0);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(direct_reclaim_end, unsigned long reclaimed)
{
	return record_reclaim(ctx, REC_RECLAIM_END, RECLAIM_DIRECT, 0, reclaimed);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(memcg_reclaim_begin, int order)
{
	return record_reclaim(ctx, REC_RECLAIM_BEGIN, RECLAIM_MEMCG, order, 0);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(memcg_reclaim_end, unsigned long reclaimed)
{
	return record_reclaim(ctx, REC_RECLAIM_END, RECLAIM_MEMCG, 0, reclaimed);
}

SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(compaction_begin, void *control, unsigned long from, unsigned long to, bool sync)
{
	return record_compaction(ctx, REC_COMPACTION_BEGIN, sync, 0);
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(compaction_end, void *control, unsigned long from, unsigned long to, bool sync, int status)
{
	return record_compaction(ctx, REC_COMPACTION_END, sync, status);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	return record_contention_begin(ctx, lock, flags);
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int ret)
{
	return record_contention_end(ctx, lock, ret);
}

SEC("tp_btf/posix_lock_inode")
int BPF_PROG(posix_lock_inode, struct inode *inode, struct file_lock *lock, int ret)
{
	return record_file_lock(ctx, inode, lock, ret);
}

SEC("tp_btf/flock_lock_inode")
int BPF_PROG(flock_lock_inode, struct inode *inode, struct file_lock *lock, int ret)
{
	return record_file_lock(ctx, inode, lock, ret);
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, unsigned int state, unsigned int cpu)
{
	return record_power(ctx, REC_CPU_IDLE, state, cpu);
}

SEC("tp_btf/cpu_frequency")
int BPF_PROG(cpu_frequency, unsigned int khz, unsigned int cpu)
{
	return record_power(ctx, REC_CPU_FREQUENCY, khz, cpu);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(net_dev_queue, struct sk_buff *skb)
{
	return record_packet(ctx, REC_NET_QUEUE, skb);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(netif_receive_skb, struct sk_buff *skb)
{
	return record_packet(ctx, REC_NET_RECEIVE, skb);
}

SEC("tp_btf/napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	return record_napi_poll(ctx, napi, work, budget);
}

SEC("fexit/throttle_cfs_rq")
int BPF_PROG(throttle_cfs_rq, struct cfs_rq *queue, bool throttled)
{
	if (throttled) /* false: more quota had come meanwhile */
		record_throttle(ctx, REC_THROTTLE, queue);
	return 0;
}

SEC("fexit/unthrottle_cfs_rq")
int BPF_PROG(unthrottle_cfs_rq, struct cfs_rq *queue)
{
	if (!queue_throttled(queue)) /* 6.18+ may leave it as it is */
		record_throttle(ctx, REC_UNTHROTTLE, queue);
	return 0;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(kvm_entry, struct kvm_vcpu *vcpu)
{
	return record_kvm_entry(ctx, vcpu);
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(kvm_exit, struct kvm_vcpu *vcpu)
{
	return record_kvm_exit(ctx, vcpu);
}

/* The kernel's CPU clock, 99 times a second on each CPU. */
SEC("perf_event")
int sample(void *ctx)
{
	return record_sample(ctx);
}

/* ------------------------------------------- called by the daemon (test_run) */

/* Finds out what only the task of a user space knows. */
SEC("syscall")
int learn_regs(void *ctx)
{
	regs_learn();
	return 0;
}

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

	if (track_tasks && task_forget(ctx->tid) && me)
		__sync_fetch_and_add(&me->reclaimed, 1);
	if (track_syscall)
		call_forget_thread(ctx->tid, me);
	if (track_chain && chain_forget(ctx->tid) && me)
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
int forget_pair(struct stale_slot *ctx)
{
	return pair_forget(ctx->index, ctx->start_ns);
}

/* Nobody has ended a span for too long; 1: its slot is free. */
SEC("syscall")
int expire_span_at(struct stale_slot *ctx)
{
	return track_span && span_expire(ctx->index, ctx->start_ns, this_cpu(bpf_get_smp_processor_id()));
}

/* The same of a work item that was cancelled. */
SEC("syscall")
int reclaim_work(struct stale_slot *ctx)
{
	return track_workqueue && work_reclaim(ctx->index, ctx->start_ns);
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
	task_stack_write(ctx);
	return 0;
}

/* The names of threads that were there before. */
SEC("iter/task")
int seed_names(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (p)
		name_seed(p);
	return 0;
}

/* What was pending before there were timeouts. */
SEC("iter/task")
int seed_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p || !timeouts)
		return 0;
	if (track_tasks)
		task_seed(p);
	if (track_syscall)
		call_seed(p);
	return 0;
}

/* 32-bit programs that ran before. */
SEC("iter/task")
int find_narrow(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (p)
		narrow_seen(p);
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
