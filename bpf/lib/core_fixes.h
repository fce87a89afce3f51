/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Every work-around for a difference between kernels or architectures (CO-RE),
 * and for what a verifier refuses or takes too long for, each with the kernel
 * that forces it. Nothing outside of this file asks what the running kernel has
 * (bpf_core_*). The oldest kernel that is supported is 6.1.
 */
#ifndef TAILCAM_CORE_FIXES_H
#define TAILCAM_CORE_FIXES_H

#include "abi/outlier.h"
#include "lib/kernel.h"

/* --------------------------------------------------------------- verifier */

/*
 * barrier_var(x), of bpf_helpers.h, hides from the compiler what it knows of x.
 * It stands
 *  - between a bounds check and the access that it is for: otherwise the check
 *    is made of one register, and the access with another (LLVM, all kernels);
 *  - where arithmetic must not become a branch, both ways of which the verifier
 *    would follow: it gives up after a million instructions.
 */

/* What a callback of bpf_loop returns. Up to 6.1 the verifier does not see that a compared number is 0 or 1. */
#define LOOP_RESULTS(go_on, stop) \
	long go_on = 0, stop = 1; \
	barrier_var(go_on);       \
	barrier_var(stop)

/*
 * Makes index a number that the verifier knows nothing of. Otherwise it follows
 * the rest of the program once for each of the sixteen slots.
 */
static __always_inline int opaque_index(int index, u64 noise)
{
	asm volatile("%0 ^= %1; %0 ^= %1" : "+r"(index) : "r"(noise));
	return index;
}

/* A kernel pointer as a number: of a cast the verifier keeps in mind that it is a pointer. */
static __always_inline u64 pointer_number(void *p)
{
	u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &p);
	return number;
}

/*
 * 6.2+: of this the verifier makes a move, and what it returns is read by an instruction; what is not mapped is 0.
 * A call of bpf_probe_read_kernel takes 28 ns, such a read 2 (docs/decisions/0136-the-clock-is-the-most.md).
 */
void *bpf_rdonly_cast(const void *obj, u32 type) __ksym __weak;

const volatile bool plain_reads; /* the kernel has it */

#define KNOWN_AS(type, p) ((type *)bpf_rdonly_cast((void *)(p), bpf_core_type_id_kernel(type)))

/* p->field, of a pointer that the verifier knows nothing of. */
#define READ_PLAIN(type, p, field)                                 \
	({                                                         \
		typeof(((type *)0)->field) value;                  \
		if (plain_reads)                                   \
			value = KNOWN_AS(type, p)->field;          \
		else                                               \
			value = BPF_CORE_READ((type *)(p), field); \
		value;                                             \
	})

/* 6.2+; before, a BPF program cannot turn an id into a task that bpf_get_task_stack takes. */
struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
void bpf_task_release(struct task_struct *p) __ksym __weak;

/* ------------------------------------------------- registers of user space */

/* Per architecture; only one flavour exists. */
struct pt_regs___x86 {
	unsigned long r15; /* from here to bx in this order: regs_read */
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r10;
	unsigned long r8;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	u16 cs; /* as wide as ip before 6.9 */
	unsigned long sp;
} CORE;

struct pt_regs___arm64 {
	u64 regs[31];
	u64 sp;
	u64 pc;
	s32 syscallno;
	u64 pstate;
} CORE;

#define ON_X86 bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)

/* The system call that regs belong to; -1: none. */
static __always_inline s32 regs_syscall(void *regs)
{
	if (ON_X86)
		return (s32)BPF_CORE_READ((struct pt_regs___x86 *)regs, orig_ax);
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, syscallno);
}

/* The same without a helper, of a pointer that the verifier knows for struct pt_regs. */
static __always_inline s32 trusted_syscall(void *regs)
{
	if (ON_X86)
		return (s32)((struct pt_regs___x86 *)regs)->orig_ax;
	return ((struct pt_regs___arm64 *)regs)->syscallno;
}

/* The first five arguments of the system call that regs, trusted as well, enter; compat: see task_compat. */
static __always_inline void trusted_args(void *regs, bool compat, u64 *args)
{
	if (ON_X86 && compat) {
		struct pt_regs___x86 *r = regs;

		args[0] = r->bx;
		args[1] = r->cx;
		args[2] = r->dx;
		args[3] = r->si;
		args[4] = r->di;
	} else if (ON_X86) {
		struct pt_regs___x86 *r = regs;

		args[0] = r->di;
		args[1] = r->si;
		args[2] = r->dx;
		args[3] = r->r10;
		args[4] = r->r8;
	} else {
		struct pt_regs___arm64 *r = regs;

		args[0] = r->regs[0];
		args[1] = r->regs[1];
		args[2] = r->regs[2];
		args[3] = r->regs[3];
		args[4] = r->regs[4];
	}
}

/*
 * What a caller's registers are found by (enum user_reg): the kernel saves them as the
 * task enters it, and keeps them until it returns.
 */
static __always_inline void regs_read(void *regs, u64 *to)
{
	if (ON_X86) {
		to[USER_IP] = BPF_CORE_READ((struct pt_regs___x86 *)regs, ip);
		to[USER_SP] = BPF_CORE_READ((struct pt_regs___x86 *)regs, sp);
		bpf_core_read(to + USER_SAVED, 6 * sizeof(u64), &((struct pt_regs___x86 *)regs)->r15);
	} else {
		to[USER_IP] = BPF_CORE_READ((struct pt_regs___arm64 *)regs, pc);
		to[USER_SP] = BPF_CORE_READ((struct pt_regs___arm64 *)regs, sp);
		bpf_core_read(to + USER_SAVED, 12 * sizeof(u64), &((struct pt_regs___arm64 *)regs)->regs[19]);
	}
}

static __always_inline u64 regs_ip(void *regs)
{
	if (ON_X86)
		return BPF_CORE_READ((struct pt_regs___x86 *)regs, ip);
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, pc);
}

static __always_inline u64 regs_sp(void *regs)
{
	if (ON_X86)
		return BPF_CORE_READ((struct pt_regs___x86 *)regs, sp);
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, sp);
}

struct task_struct___x86 {
	struct {
		unsigned long fsbase;
	} thread;
} CORE;

struct task_struct___arm64 {
	struct {
		struct {
			unsigned long tp_value;
		} uw;
	} thread;
} CORE;

/*
 * The thread pointer of 64-bit code, as the kernel has saved it: when it was set by a system
 * call, or when the thread last left its CPU (arch/x86/kernel/process_64.c, save_fsgs();
 * arch/arm64/kernel/process.c, tls_preserve_current_state()).
 */
static __always_inline u64 thread_pointer(struct task_struct *p)
{
	if (ON_X86)
		return BPF_CORE_READ((struct task_struct___x86 *)p, thread.fsbase);
	return BPF_CORE_READ((struct task_struct___arm64 *)p, thread.uw.tp_value);
}

#define TS_COMPAT 0x0002      /* arch/x86/include/asm/thread_info.h */
#define PSR_MODE32_BIT 0x0010 /* arch/arm64/include/uapi/asm/ptrace.h */

/*
 * The system call that p is in is of the table for 32-bit programs. regs are its
 * own, trusted. arm64 has a flag of the thread as well, TIF_32BIT,
 * but its number is not in BTF, and not fixed; the saved mode of the CPU is.
 */
static __always_inline bool task_compat(struct task_struct *p, void *regs)
{
	if (ON_X86)
		return p->thread_info.status & TS_COMPAT;
	return ((struct pt_regs___arm64 *)regs)->pstate & PSR_MODE32_BIT;
}

/* The same of a task and of registers that the verifier does not know for such. */
static __always_inline bool read_compat(struct task_struct *p, void *regs)
{
	if (ON_X86)
		return BPF_CORE_READ(p, thread_info.status) & TS_COMPAT;
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, pstate) & PSR_MODE32_BIT;
}

#define USER32_CS 0x23 /* arch/x86/include/asm/segment.h */

/* The registers are of 32-bit code, whoever's they are. */
static __always_inline bool regs_narrow(void *regs)
{
	if (ON_X86)
		return BPF_CORE_READ((struct pt_regs___x86 *)regs, cs) == USER32_CS;
	return BPF_CORE_READ((struct pt_regs___arm64 *)regs, pstate) & PSR_MODE32_BIT;
}

/*
 * Where the registers of user space stand in a kernel stack. It depends on the
 * size of pages, on KASAN, and since 6.9 on FRED ("x86/fred: Reserve space for
 * the FRED stack frame"), but not on the task, if it has a user space at all:
 * so those of the daemon tell, which asks for it before anything is attached.
 */
volatile u64 regs_offset;

static __always_inline void regs_learn(void)
{
	struct task_struct *current = bpf_get_current_task_btf();

	regs_offset = pointer_number((void *)bpf_task_pt_regs(current)) - (u64)current->stack;
}

/* Registers of a task that is not current, and not known to the verifier for a task. */
static __always_inline void *task_regs(struct task_struct *p)
{
	u64 stack = (u64)BPF_CORE_READ(p, stack);

	return stack ? (void *)(stack + regs_offset) : NULL;
}

/*
 * Those of user space of a task that the verifier knows, as far as it has one; to be read as trusted_syscall()
 * does. bpf_task_pt_regs takes 16 ns.
 */
static __always_inline void *trusted_regs(struct task_struct *p)
{
	if (plain_reads)
		return KNOWN_AS(struct pt_regs___x86, (u64)p->stack + regs_offset);
	return (void *)bpf_task_pt_regs(p);
}

/* ------------------------------------------------------------ system calls */

/* The numbers differ: arch/x86/entry/syscalls/, scripts/syscall.tbl (arm64), arch/arm64/tools/syscall_32.tbl. */
static __always_inline bool is_lock_call(s32 nr, bool compat)
{
	if (nr == 449 || nr == 455) /* futex_waitv, futex_wait: everywhere */
		return true;
	if (compat)
		return nr == 240 || nr == 422 || nr == 143; /* futex, futex_time64, flock */
	if (ON_X86)
		return nr == 202 || nr == 73;
	return nr == 98 || nr == 32;
}

static __always_inline bool is_sleep_call(s32 nr, bool compat)
{
	if (compat) /* nanosleep, clock_nanosleep and its _time64 */
		return nr == 162 || nr == 407 || nr == (ON_X86 ? 267 : 265);
	if (ON_X86)
		return nr == 35 || nr == 230;
	return nr == 101 || nr == 115;
}

/* ------------------------------------------------------------------ tasks */

/* 7.2: on_cpu and on_rq are u8, int before. */
struct task_struct___u8 {
	u8 on_cpu;
	u8 on_rq;
} CORE;

#define IS_U8(field) (bpf_core_field_size(field) == sizeof(u8))

static __always_inline bool task_on_rq(struct task_struct *p)
{
	return IS_U8(p->on_rq) ? ((struct task_struct___u8 *)p)->on_rq : p->on_rq;
}

static __always_inline bool task_on_cpu(struct task_struct *p)
{
	return IS_U8(p->on_cpu) ? ((struct task_struct___u8 *)p)->on_cpu : p->on_cpu;
}

/* The same of a task that the verifier does not know for one. */
static __always_inline bool read_on_cpu(struct task_struct *p)
{
	return IS_U8(p->on_cpu) ? BPF_CORE_READ((struct task_struct___u8 *)p, on_cpu) : BPF_CORE_READ(p, on_cpu);
}

/*
 * Whether prev goes on to be runnable as it leaves its CPU. Up to 6.11
 * prev_state is read before __schedule() finds a pending signal and lets the
 * task go on; __state tells (kernel/sched/core.c).
 */
static __always_inline bool task_runnable(struct task_struct *prev, bool preempt, u32 prev_state)
{
	return preempt || !prev_state || !prev->__state;
}

/* The id of p as it sees itself (gettid()): in its own pid namespace. Numbers beyond the first are read by a helper. */
static __always_inline u32 task_tid_inside(struct task_struct *p)
{
	struct pid *pid = p->thread_pid;
	u32 level = pid->level;
	int nr = p->pid;

	/* Not returned here: the compiler would read both numbers by one instruction, which no verifier takes. */
	if (level)
		/* Of the number: 6.1 adds nothing that it has no bound of to a pointer. */
		bpf_probe_read_kernel(&nr, sizeof(nr),
				      (void *)(pointer_number(pid) + bpf_core_field_offset(struct pid, numbers) +
					       level * bpf_core_type_size(struct upid) +
					       bpf_core_field_offset(struct upid, nr)));
	return nr;
}

static __always_inline bool task_iowait(struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD(task, in_iowait);
}

/*
 * The cgroup of prev has used up its CPU quota on this CPU. From 6.18 on each
 * task is taken off its queue by itself, and marked ("sched/fair: Switch to
 * task based throttle model"); before, its whole queue is
 * (kernel/sched/fair.c, throttle_cfs_rq()), or one above it, which
 * throttle_count counts. Real-time tasks have no part in it.
 */
static __always_inline bool task_throttled(struct task_struct *prev)
{
	if (bpf_core_field_exists(prev->throttled))
		return prev->throttled;
	if (!bpf_core_field_exists(prev->se.cfs_rq) || !bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count))
		return false;
	return prev->prio >= MAX_RT_PRIO && prev->se.cfs_rq->throttle_count > 0;
}

/* A bit field since 6.18. */
static __always_inline bool queue_throttled(struct cfs_rq *queue)
{
	return BPF_CORE_READ_BITFIELD(queue, throttled);
}

/* Run queues tell of time that the hypervisor has taken: CONFIG_PARAVIRT_TIME_ACCOUNTING, CONFIG_FAIR_GROUP_SCHED. */
static __always_inline bool queue_knows_steal(struct task_struct *p)
{
	return bpf_core_field_exists(((struct rq *)0)->prev_steal_time_rq) && bpf_core_field_exists(p->se.cfs_rq);
}

/*
 * How long ago the scheduler stopped the clock of prev, which leaves this CPU: it may have looked for work on
 * other CPUs since (kernel/sched/fair.c, sched_balance_newidle()). 0 without CONFIG_FAIR_GROUP_SCHED.
 */
static __always_inline u64 clock_stopped(struct task_struct *prev, u32 cpu)
{
	struct rq *queue;

	if (!bpf_core_field_exists(prev->se.cfs_rq))
		return 0;
	queue = prev->se.cfs_rq->rq;
	if (queue->cpu != cpu || queue->clock_task < prev->se.exec_start)
		return 0;
	return queue->clock_task - prev->se.exec_start;
}

/*
 * How long next, which gets this CPU, was on its run queue, as the scheduler has it: since it was put there, or
 * moved there from another one. It forgets that at the end of a switch only (kernel/sched/stats.h,
 * sched_info_arrive()). A queue's clock is not read again at a switch for which a wake-up has read it
 * (kernel/sched/core.c, wakeup_preempt()). Negative, as a number with a sign, if clocks of CPUs differ; 0 without
 * CONFIG_SCHED_INFO and CONFIG_FAIR_GROUP_SCHED, as tracker/kernel knows.
 */
static __always_inline u64 queued_for(struct task_struct *next)
{
	u64 queued;

	if (!bpf_core_field_exists(next->sched_info) || !bpf_core_field_exists(next->se.cfs_rq))
		return 0;
	queued = next->sched_info.last_queued;
	return queued ? next->se.cfs_rq->rq->clock - queued : 0;
}

struct task_struct___counted {
	struct {
		u64 syscr, syscw;
	} ioac; /* with CONFIG_TASK_XACCT */
} CORE;

/* How many calls that read have ended in this task; always 0 where the kernel does not count them. */
static __always_inline u64 task_reads(struct task_struct *p)
{
	struct task_struct___counted *counted = (void *)p;

	return bpf_core_field_exists(counted->ioac.syscr) ? counted->ioac.syscr : 0;
}

/* The same of calls that read or write. */
static __always_inline u64 task_calls(struct task_struct *p)
{
	struct task_struct___counted *counted = (void *)p;

	return task_reads(p) + (bpf_core_field_exists(counted->ioac.syscw) ? counted->ioac.syscw : 0);
}

/* -------------------------------------------------------------- interrupts */

/* include/linux/preempt.h */
#define SOFTIRQ_OFFSET 0x000100
#define HARDIRQ_MASK 0x0f0000

/* What may run on top of a task. */
enum running_in {
	IN_SOFTIRQ = 1 << 0,
	IN_HARDIRQ = 1 << 1,
	IN_UNKNOWN = IN_SOFTIRQ | IN_HARDIRQ, /* this kernel does not tell: x86 without CONFIG_KALLSYMS_ALL */
};

/*
 * The count that says so: a per-CPU variable of its own on x86 up to 6.1 and
 * again since 6.15, a member of pcpu_hot in between ("x86/percpu: Move
 * preempt_count next to current_task"), a field of the task's thread_info on
 * arm64. tracker/kernel/variables.go makes the references.
 */
extern void __preempt_count __ksym __weak;
extern void pcpu_hot __ksym __weak;

const volatile bool preempt_own; /* the kernel has __preempt_count */
const volatile bool preempt_hot; /* the kernel has pcpu_hot.preempt_count */

/*
 * The verifier finds a per-CPU variable by its symbol, which is there with
 * CONFIG_KALLSYMS_ALL only. BTF says how far they are from each other, and each
 * task points to the run queue of its CPU. Offsets from that; 0: not known.
 */
const volatile s64 percpu_preempt_count, percpu_softnet_data, percpu_kstat, percpu_hrtimer_bases, percpu_irq_regs,
	percpu_tick;

/* What percpu_* are offsets from, on this CPU; 0: not known. base: of this CPU. */
static __always_inline u64 percpu_base(struct task_struct *current, u64 *base, u32 cpu)
{
	struct rq *queue;

	if (*base || !bpf_core_field_exists(current->se.cfs_rq))
		return *base;
	queue = current->se.cfs_rq->rq;
	if (queue->cpu == cpu)
		*base = pointer_number(queue);
	return *base;
}

#define COUNT_UNKNOWN 0xffffffff

static __always_inline u32 preempt_count(struct task_struct *current, u64 base)
{
	if (bpf_core_field_exists(current->thread_info.preempt_count))
		return current->thread_info.preempt_count;
	if (preempt_own)
		return *(u32 *)bpf_this_cpu_ptr(&__preempt_count);
	if (preempt_hot)
		return ((struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	if (base && percpu_preempt_count)
		return READ_PLAIN(struct refcount_struct, base + percpu_preempt_count, refs.counter);
	return COUNT_UNKNOWN;
}

/* A softirq runs, or is interrupted. Real-time kernels run softirqs in threads, which they count themselves. */
static __always_inline bool in_softirq(struct task_struct *current, u32 count)
{
	if (bpf_core_field_exists(current->softirq_disable_cnt))
		count = current->softirq_disable_cnt;
	return count & SOFTIRQ_OFFSET;
}

/* What runs on top of current on this CPU. */
static __always_inline u32 running_in(struct task_struct *current, u64 base)
{
	u32 count = preempt_count(current, base);

	if (count == COUNT_UNKNOWN)
		return IN_UNKNOWN;
	if (count & HARDIRQ_MASK)
		return IN_HARDIRQ;
	return in_softirq(current, count) ? IN_SOFTIRQ : 0;
}

/* An interrupt runs: what it has interrupted is a softirq. */
static __always_inline bool interrupts_softirq(struct task_struct *current, u64 base)
{
	u32 count = preempt_count(current, base);

	return count != COUNT_UNKNOWN && in_softirq(current, count);
}

#define SOFTIRQ_NET_RX 3
#define NAPIF_STATE_SCHED 1 /* include/linux/netdevice.h: BIT(0) */

/*
 * Whether this CPU, in a softirq, deals with packets that came in. Before 6.4
 * ("net: napi_schedule_rps() cleanup") only those tell that were sent on this machine: backlog.
 */
static __always_inline bool receives_packets(u64 base, bool *backlog)
{
	u64 sd = base + percpu_softnet_data;

	*backlog = false;
	if (!base || !percpu_softnet_data)
		return false;
	*backlog = READ_PLAIN(struct softnet_data, sd, backlog.state) & NAPIF_STATE_SCHED;
	if (!bpf_core_field_exists(((struct softnet_data *)0)->in_net_rx_action))
		return *backlog;
	return READ_PLAIN(struct softnet_data, sd, in_net_rx_action);
}

/* The interrupt that runs on this CPU is that of the high-resolution timers. */
static __always_inline bool in_timer_interrupt(u64 base)
{
	struct hrtimer_cpu_base *timers = (void *)(base + percpu_hrtimer_bases);

	if (!base || !percpu_hrtimer_bases || !bpf_core_field_exists(timers->in_hrtirq))
		return false;
	return BPF_CORE_READ_BITFIELD_PROBED(timers, in_hrtirq);
}

/* timer is the tick of this CPU (kernel/time/tick-sched.c). */
static __always_inline bool is_tick(struct hrtimer *timer, u64 base)
{
	u64 tick = base + percpu_tick;

	barrier_var(tick); /* pointers can be compared, not subtracted */
	return base && percpu_tick && (u64)timer == tick;
}

/* Where the interrupt that runs on this CPU has interrupted it; 0: not known. */
static __always_inline u64 interrupted_ip(u64 base)
{
	void *regs = NULL;

	if (!base || !percpu_irq_regs)
		return 0;
	bpf_probe_read_kernel(&regs, sizeof(regs), (void *)(base + percpu_irq_regs));
	return regs ? regs_ip(regs) : 0;
}

/* ----------------------------------------------------------- locks, timers */

#define MUTEX_FLAGS 7UL	       /* kernel/locking/mutex.h: beside the owner */
#define RWSEM_READER_OWNED 1UL /* kernel/locking/rwsem.c: the owner is but the last reader that came */
#define RWSEM_OWNER_FLAGS 3UL
#define RT_MUTEX_HAS_WAITERS 1UL /* kernel/locking/rtmutex_common.h */

/* Who holds a lock, as struct task_struct *; 0: nobody knows. Those of real-time kernels are rt_mutexes inside. */
static __always_inline u64 mutex_owner(void *lock)
{
	u64 owner = 0;

	if (bpf_core_field_exists(((struct mutex *)0)->owner))
		owner = BPF_CORE_READ((struct mutex *)lock, owner.counter);
	return owner & ~MUTEX_FLAGS;
}

static __always_inline u64 rwsem_owner(void *lock)
{
	u64 owner = 0;

	if (bpf_core_field_exists(((struct rw_semaphore *)0)->owner))
		owner = BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
	return owner & RWSEM_READER_OWNED ? 0 : owner & ~RWSEM_OWNER_FLAGS;
}

/* shared: it is one that many may read at once. */
static __always_inline u64 rt_owner(void *lock, bool shared)
{
	u64 owner = 0;

	if (!shared)
		owner = (u64)BPF_CORE_READ((struct rt_mutex_base *)lock, owner);
	else if (bpf_core_type_exists(struct rwbase_rt))
		owner = (u64)BPF_CORE_READ((struct rwbase_rt *)lock, rtmutex.owner);
	return owner & ~RT_MUTEX_HAS_WAITERS;
}

/* The instruction pointer of a virtual CPU of x86, which has left its array of registers with 7.2. */
#define VCPU_REGS_RIP 16 /* arch/x86/include/asm/kvm_host.h */

static __always_inline u64 vcpu_ip(struct kvm_vcpu *vcpu)
{
	if (bpf_core_field_exists(((struct kvm_vcpu___rip *)0)->arch.rip))
		return ((struct kvm_vcpu___rip *)vcpu)->arch.rip;
	return vcpu->arch.regs[VCPU_REGS_RIP];
}

/*
 * How far a timer of TCP is into its socket; 0: not known. From 7.0 on the one that sends again
 * is in the place of the one for keep-alive, which has moved.
 */
static __always_inline u64 tcp_retransmit_offset(void)
{
	if (bpf_core_field_exists(struct inet_connection_sock, icsk_retransmit_timer))
		return bpf_core_field_offset(struct inet_connection_sock, icsk_retransmit_timer);
	if (bpf_core_field_exists(struct sock___tcp_timer, tcp_retransmit_timer))
		return bpf_core_field_offset(struct sock___tcp_timer, tcp_retransmit_timer);
	return 0;
}

static __always_inline u64 tcp_keepalive_offset(void)
{
	if (bpf_core_field_exists(struct inet_connection_sock, icsk_keepalive_timer))
		return bpf_core_field_offset(struct inet_connection_sock, icsk_keepalive_timer);
	return bpf_core_field_offset(struct sock, sk_timer);
}

/* Before 6.18 ("tcp: remove icsk->icsk_timeout") timers of TCP also expired early, and began anew. */
static __always_inline bool tcp_retransmit_due(struct inet_connection_sock *sk, unsigned long now)
{
	return !bpf_core_field_exists(sk->icsk_timeout) || (s64)(now - BPF_CORE_READ(sk, icsk_timeout)) >= 0;
}

static __always_inline bool tcp_delack_due(struct inet_connection_sock *sk, unsigned long now)
{
	return !bpf_core_field_exists(sk->icsk_ack.timeout) || (s64)(now - BPF_CORE_READ(sk, icsk_ack.timeout)) >= 0;
}

/* It expires in the softirq. */
static __always_inline bool timer_is_soft(struct hrtimer *timer)
{
	return bpf_core_field_exists(timer->is_soft) && timer->is_soft;
}

/* -------------------------------------------------------------- page cache */

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
} CORE;

struct hlist_node {
	struct hlist_node *next;
} CORE;

struct hlist_head {
	struct hlist_node *first;
} CORE;

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_nlink;
	s64 i_size;
	u32 i_generation;
	struct hlist_head i_dentry;
	struct file_lock_context *i_flctx;
} CORE;

struct address_space {
	struct inode *host;
	unsigned long nrpages;
} CORE;

struct qstr {
	const unsigned char *name;
} CORE;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
} CORE;

/* 7.2+ */
struct dentry___flat {
	struct hlist_node d_alias;
} CORE;

/* The name that an element of its inode's list of names is part of. */
static __always_inline struct dentry *dentry_of(struct hlist_node *alias)
{
	if (bpf_core_field_exists(((struct dentry___flat *)0)->d_alias))
		return (void *)alias - bpf_core_field_offset(struct dentry___flat, d_alias);
	return (void *)alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
}

struct folio {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
	unsigned long memcg_data; /* with CONFIG_MEMCG */
	u32 _nr_pages;		  /* 6.15+ */
	u32 _folio_nr_pages;	  /* before */
} CORE;

/* 6.18+: "mm: introduce memdesc_flags_t". */
struct folio___memdesc {
	struct {
		unsigned long f;
	} flags;
} CORE;

enum pageflags {
	PG_head = 6,
};

/* Pages of a folio. */
static __always_inline u64 folio_pages(struct folio *folio)
{
	unsigned long flags;

	if (bpf_core_field_exists(((struct folio___memdesc *)0)->flags.f))
		flags = ((struct folio___memdesc *)folio)->flags.f;
	else
		flags = folio->flags;
	if (!(flags & 1ul << bpf_core_enum_value(enum pageflags, PG_head)))
		return 1;
	if (bpf_core_field_exists(folio->_nr_pages))
		return folio->_nr_pages;
	return folio->_folio_nr_pages;
}

enum cgroup_subsys_id {
	memory_cgrp_id = 4,
};

struct cgroup___subsys {
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[16];
} CORE;

struct mem_cgroup {
	struct cgroup_subsys_state css;
} CORE;

#define MEMCG_DATA_FLAGS 7ul /* include/linux/memcontrol.h: enum page_memcg_data_flags */

/*
 * The id of the cgroup that a page of a file is charged to; 0: not known. It is believed
 * only if that cgroup says so, too: what memcg_data points to is no promise.
 */
static __always_inline u64 folio_owner(struct folio *folio)
{
	struct cgroup_subsys_state *css = NULL;
	struct cgroup___subsys *cgroup;
	struct mem_cgroup *memcg;

	if (!bpf_core_field_exists(folio->memcg_data) ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return 0;
	memcg = (void *)(folio->memcg_data & ~MEMCG_DATA_FLAGS);
	if (!memcg)
		return 0;
	cgroup = (void *)BPF_CORE_READ(memcg, css.cgroup);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)cgroup + bpf_core_field_offset(struct cgroup___subsys, subsys) +
				      sizeof(css) * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
	if (!css || (void *)css != (void *)memcg + bpf_core_field_offset(struct mem_cgroup, css))
		return 0;
	return BPF_CORE_READ(cgroup, kn, id);
}

struct task_struct___reclaims {
	void *reclaim_state;
} CORE;

static __always_inline bool task_reclaims(struct task_struct *p)
{
	return ((struct task_struct___reclaims *)p)->reclaim_state;
}

/* -------------------------------------------------------------- file locks */

struct file_lock_context {
	struct list_head flc_flock;
	struct list_head flc_posix;
} CORE;

struct file_lock_core {
	void *flc_owner;
	struct list_head flc_list;
	unsigned int flc_flags;
	unsigned char flc_type;
	int flc_pid;
} CORE;

struct file_lock {
	struct file_lock_core c;
	s64 fl_start;
	s64 fl_end;
} CORE;

/* Up to 6.8 ("filelock: split common fields into struct file_lock_core"). */
struct file_lock___flat {
	void *fl_owner;
	struct list_head fl_list;
	unsigned int fl_flags;
	unsigned char fl_type;
	unsigned int fl_pid;
} CORE;

struct read_file_lock {
	u64 owner;
	s64 start;
	s64 end;
	u32 flags;
	u32 type;
	s32 pid;
};

static __always_inline void file_lock_read(struct read_file_lock *to, struct file_lock *from)
{
	if (bpf_core_field_exists(from->c)) {
		to->owner = (u64)BPF_CORE_READ(from, c.flc_owner);
		to->flags = BPF_CORE_READ(from, c.flc_flags);
		to->type = BPF_CORE_READ(from, c.flc_type);
		to->pid = BPF_CORE_READ(from, c.flc_pid);
	} else {
		struct file_lock___flat *flat = (void *)from;

		to->owner = (u64)BPF_CORE_READ(flat, fl_owner);
		to->flags = BPF_CORE_READ(flat, fl_flags);
		to->type = BPF_CORE_READ(flat, fl_type);
		to->pid = BPF_CORE_READ(flat, fl_pid);
	}
	to->start = BPF_CORE_READ(from, fl_start);
	to->end = BPF_CORE_READ(from, fl_end);
}

/* Where the list of a lock's file has its member of that list. */
static __always_inline u64 file_lock_link(void)
{
	if (bpf_core_field_exists(((struct file_lock *)0)->c))
		return bpf_core_field_offset(struct file_lock, c.flc_list);
	return bpf_core_field_offset(struct file_lock___flat, fl_list);
}

#endif
