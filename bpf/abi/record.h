/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flight recorder's records, which snapshot/trace decodes. */
#ifndef TAILCAM_ABI_RECORD_H
#define TAILCAM_ABI_RECORD_H

#include <linux/types.h>

#include "abi/tracker.h"

enum record_size {
	RECORD_SIZE = 64,     /* a cache line */
	SHORT_SIZE = 32,      /* of a short record: two share a cache line */
	RECORD_NAME_LEN = 24, /* of a work queue, or a network device */
	SYSCALL_ARGS = 5,     /* of six */
	STACK_FRAMES = 7,     /* of a stack, the innermost */
};

/* Types of flight-recorder records. Numbers are never reused. */
enum record_type {
	REC_SWITCH = 1,
	REC_WAKING = 2,
	REC_WAKEUP_NEW = 3,
	REC_MIGRATE = 4,
	REC_IRQ_ENTRY = 5,
	REC_IRQ_EXIT = 6,
	REC_SOFTIRQ_ENTRY = 7,
	REC_SOFTIRQ_EXIT = 8,
	REC_HRTIMER_ENTRY = 9,
	REC_HRTIMER_EXIT = 10,
	REC_BLOCK_INSERT = 11,
	REC_BLOCK_ISSUE = 12,
	REC_BLOCK_COMPLETE = 13,
	REC_WORK_START = 14,
	REC_WORK_END = 15,
	REC_FORK = 16,
	REC_EXEC = 17,
	REC_EXIT = 18,
	REC_SYSCALL_ENTRY = 19,
	REC_SYSCALL_EXIT = 20,
	REC_WORK_QUEUE = 21,
	REC_TIMER_ENTRY = 22,
	REC_TIMER_EXIT = 23,
	REC_FAULT_USER = 24,
	REC_FAULT_KERNEL = 25,
	REC_RECLAIM_BEGIN = 26,
	REC_RECLAIM_END = 27,
	REC_COMPACTION_BEGIN = 28,
	REC_COMPACTION_END = 29,
	REC_LOCK_BEGIN = 30,
	REC_LOCK_END = 31,
	REC_CPU_IDLE = 32,
	REC_CPU_FREQUENCY = 33,
	REC_NET_QUEUE = 34,
	REC_NET_RECEIVE = 35,
	REC_NAPI_POLL = 36,
	REC_THROTTLE = 37,
	REC_UNTHROTTLE = 38,
	REC_KVM_ENTRY = 39,
	REC_KVM_EXIT = 40,
	REC_STEAL = 41,
	REC_INTERRUPTS = 42,
	/* From here on: a whole run, written at its end. Readers turn it into entry and exit. */
	REC_IRQ = 43,
	REC_SOFTIRQ = 44,
	REC_WAIT = 45,
	REC_SAMPLE = 46,
	REC_RUN = 47,
	REC_FILE_LOCK = 48,
	REC_LOCK_SPIN = 49, /* a whole run as well, */
	REC_TICK = 50,	    /* and so is this */
	RECORD_TYPES,
};

/*
 * In record.type: a short record, as switches and wake-ups are written. What a
 * whole one has beside are names: those of its threads at its time
 * (struct task_name).
 */
enum record_form {
	RECORD_SHORT = 0x8000,
};

/* sched_switch; the task that leaves is record.tid. */
struct record_switch {
	char prev_comm[TASK_COMM_LEN];
	char next_comm[TASK_COMM_LEN];
	__u32 next_tid;
	__u32 next_pid;
	__s16 prev_prio; /* kernel priority: 120 is nice 0, below 100 real time */
	__s16 next_prio;
	__u32 prev_state; /* the kernel's state in PREV_STATE, and what follows */
};

/* record_switch.prev_state: the kernel's state, the system call, and bits. */
enum prev_state {
	PREV_STATE = 0x0001ffff,
	PREV_CALL_SHIFT = 17, /* 11 bits: the system call that prev is in, plus 1; 0: not known */
	PREV_CALL_MASK = 0x7ff,
	PREV_EXCEPTION = 0x7ff,	     /* as a call: in an exception, such as a page fault */
	PREV_FUTEX = 0x600,	     /* as a call: futex of this machine's own table, and enum futex_wait */
	PREV_FUTEX_PLACE = 0x680,    /* as a call: the same, FUTEX_WAIT of a private futex, and enum futex_place */
	PREV_FROZEN = 0x10000000,    /* a cgroup freezer stops it */
	PREV_IOWAIT = 0x20000000,    /* in_iowait */
	PREV_THROTTLED = 0x40000000, /* its cgroup has used up its CPU quota here */
	PREV_PREEMPTED = 0x80000000,
};

/* With PREV_FUTEX: what the call was asked to do. */
enum futex_wait {
	FUTEX_IS_WAIT = 0,
	FUTEX_IS_BITSET = 1,  /* FUTEX_WAIT_BITSET */
	FUTEX_IS_LOCK_PI = 2, /* FUTEX_LOCK_PI, FUTEX_LOCK_PI2 */
	FUTEX_IS_REQUEUE = 3, /* FUTEX_WAIT_REQUEUE_PI */
	FUTEX_KIND = 3,
	FUTEX_SHARED = 4,      /* without FUTEX_PRIVATE_FLAG */
	FUTEX_TIMED = 8,       /* with a time limit */
	FUTEX_VALUE_SHIFT = 4, /* 3 bits: the value that it is expected to have */
	FUTEX_VALUE_OTHER = 4, /* this, or a larger one */
	FUTEX_WAITS = 0x80,
};

/*
 * With PREV_FUTEX_PLACE: what is waited for. Of all that wait for one futex, as at
 * a barrier, the bits of its address are the same.
 */
enum futex_place {
	FUTEX_PLACE_BITS = 5, /* of the address, hashed */
	FUTEX_PLACE_TIMED = 1 << FUTEX_PLACE_BITS,
	FUTEX_PLACE_VALUE = 2 << FUTEX_PLACE_BITS, /* times the value, as above */
	FUTEX_PLACES = FUTEX_PLACE_VALUE * (FUTEX_VALUE_OTHER + 1),
};

/* sched_waking and sched_wakeup_new: tid becomes runnable; the waker is record.tid. */
struct record_wake {
	char comm[TASK_COMM_LEN];
	__u32 tid;
	__u32 pid;
	__s32 prio;
	__s32 target_cpu;
	__u32 context; /* WAKER_*: what ran on top of the waker */
	__u8 _pad[12];
};

/* sched_migrate_task. */
struct record_migrate {
	char comm[TASK_COMM_LEN];
	__u32 tid;
	__s32 prio;
	__s32 orig_cpu;
	__s32 dest_cpu;
	__u8 _pad[16];
};

/* REC_IRQ. Of it, readers make irq_handler_entry (name) and irq_handler_exit (ret). */
struct record_irq {
	__s32 irq;
	__s32 ret;
	char name[WORK_NAME_LEN];
	__u64 start_ns;
};

/* REC_SOFTIRQ. Of it, readers make softirq_entry (irq) and softirq_exit. */
struct record_softirq {
	__u32 vec;
	__s32 irq; /* whose handler had ended just before, and may have raised it; -1: none */
	__u64 start_ns;
	__u8 _pad[32];
};

enum interrupts_vec {
	INTERRUPTS_IRQ = 0xffffffff, /* of interrupt handlers */
};

enum interrupts_sampled {
	INTERRUPTS_SAMPLED = 1,
	INTERRUPTS_SAME = 2, /* and no other softirq has begun since then */
};

/*
 * REC_INTERRUPTS: runs too short for records of their own. They have taken total_ns since since_ns.
 * If sampled, softirqs have no hooks: a timer's interrupt found the CPU in one, and count of all
 * vectors had begun since an interrupt before it.
 */
struct record_interrupts {
	__u64 since_ns;
	__u32 total_ns;
	__u32 count;
	__u32 vec; /* of softirqs, or INTERRUPTS_IRQ; sampled: or SOFTIRQS, if not known */
	__u32 sampled;
	__u8 _pad[24];
};

/*
 * hrtimer_expire_entry and hrtimer_expire_exit (hrtimer only). REC_TICK: of the tick, both; it
 * began at now.
 */
struct record_hrtimer {
	__u64 hrtimer;
	__u64 function;
	__s64 now;
	__u8 _pad[24];
};

/* block_rq_insert, block_rq_issue, block_rq_complete (error, bytes of this completion). */
struct record_block {
	__u64 rq;
	__u64 sector; /* of 512 bytes */
	__u32 dev;    /* MKDEV: major << 20 | minor */
	__u32 bytes;
	__u32 cmd_flags; /* REQ_OP in the low 8 bits */
	__s32 error;	 /* blk_status_t */
	char comm[TASK_COMM_LEN];
};

/* workqueue_execute_start and workqueue_execute_end. */
struct record_work {
	__u64 work;
	__u64 function;
	__u8 _pad[32];
};

/* sched_process_fork, _exec (old tid in child_tid), _exit. */
struct record_process {
	char comm[TASK_COMM_LEN];	/* of the parent, or of the task itself */
	char child_comm[TASK_COMM_LEN]; /* fork only */
	__u32 pid;			/* process (thread group) id of record.tid */
	__u32 child_tid;		/* fork: new task; exec: tid before */
	__u32 child_pid;		/* fork only */
	__s32 prio;
};

/* sys_enter (args, the first five) and sys_exit (ret). */
struct record_syscall {
	__u32 nr;
	__u32 pid;
	union {
		__u64 args[SYSCALL_ARGS];
		__s64 ret;
	};
};

/* workqueue_queue_work. */
struct record_work_queue {
	__u64 work;
	__u64 function;
	char name[RECORD_NAME_LEN]; /* of the work queue */
	__s32 req_cpu;
	__u32 context; /* WAKER_*: what ran on top of the task that queued it */
};

/* record_timer.tcp: what a timer of TCP that expired is for; numbers of ICSK_TIME_* where there are. */
enum tcp_timer {
	TCP_TIMER_NONE = 0,	  /* not TCP's, not known, or nothing was due */
	TCP_TIMER_RETRANSMIT = 1, /* what was sent is sent again: data, or a SYN */
	TCP_TIMER_DELACK = 2,	  /* an acknowledgement that was delayed */
	TCP_TIMER_PROBE = 3,	  /* asks whether a closed window has opened */
	TCP_TIMER_CORK = 4,	  /* sends what its sender has held back, though the window is open */
	TCP_TIMER_LOSS_PROBE = 5, /* the last packet again, as its acknowledgement is late */
	TCP_TIMER_REORDER = 6,
	TCP_TIMER_KEEPALIVE = 7,
	TCP_TIMER = 0xff,
	TCP_STATE_SHIFT = 8,	/* 8 bits: the state of the socket, as the kernel has it */
	TCP_LISTENER = 0x10000, /* a SYN to a listener of the same network namespace, in accept_queue */
};

/* timer_expire_entry and timer_expire_exit (timer only). What follows now is of TCP's timers. */
struct record_timer {
	__u64 timer;
	__u64 function;
	__u64 now;	    /* jiffies */
	__u32 waiter;	    /* who waits for the socket first; 0: not known */
	__u32 address;	    /* of the peer, IPv4, as in packets; 0: another family */
	__u32 port;	    /* of the peer */
	__u32 tcp;	    /* enum tcp_timer */
	__u32 accept_queue; /* how many wait there to be accepted, */
	__u32 accept_limit; /* and may before it is full */
};

/* page_fault_user and page_fault_kernel. */
struct record_fault {
	__u64 address;
	__u64 ip;
	__u64 error_code;
	__u8 _pad[24];
};

enum reclaim_kind {
	RECLAIM_DIRECT = 0,
	RECLAIM_MEMCG = 1,
};

/* mm_vmscan_{direct,memcg}_reclaim_begin (order) and _end (reclaimed); mm_compaction_begin (sync) and _end (status). */
struct record_reclaim {
	__u64 reclaimed; /* pages */
	__u32 kind;	 /* enum reclaim_kind */
	__s32 order;
	__u32 sync;
	__s32 status;
	__u8 _pad[24];
};

/*
 * contention_begin (flags: LCB_F_*, owner) and contention_end (ret). REC_LOCK_SPIN has both, of a
 * CPU that spun (flags, start_ns).
 */
struct record_lock {
	__u64 lock;
	__u32 flags;
	__u32 owner_tid; /* 0: not known */
	__s32 ret;
	__u32 _pad;
	__u64 start_ns;
	__u8 _pad2[16];
};

/*
 * posix_lock_inode and flock_lock_inode: a lock of a file is asked for, or given back. Only of files
 * of which somebody has asked for one that another has, in the last seconds.
 */
struct record_file_lock {
	__u64 inode;
	__u32 device; /* as in record_block */
	__s32 ret;    /* 0: done; 1: it is waited for; -EAGAIN: another has it */
	__u64 start;  /* of POSIX locks: first and last byte */
	__u64 end;
	__u32 flags; /* FL_* of the kernel */
	__u32 type;  /* F_RDLCK, F_WRLCK, F_UNLCK */
	__u32 pid;
	__u32 holder_pid; /* ret is not 0: a process that has it; 0: not known */
};

/* cpu_idle (state: 0xffffffff is its end) and cpu_frequency (state in kHz). */
struct record_power {
	__u32 state;
	__u32 cpu;
	__u8 _pad[40];
};

/* net_dev_queue, netif_receive_skb (skb, bytes) and napi_poll (work, budget). */
struct record_net {
	__u64 skb;
	__u32 bytes;
	__s32 work;
	__s32 budget;
	__u32 context; /* net_dev_queue: as in record_work_queue, without numbers */
	char dev[RECORD_NAME_LEN];
};

/* throttle_cfs_rq and unthrottle_cfs_rq: all tasks of a cgroup on one CPU. */
struct record_throttle {
	__u64 cgroup; /* id, as in outliers */
	__u32 cpu;
	__u8 _pad[36];
};

/* kvm_entry and kvm_exit (reason, ip). */
struct record_kvm {
	__u32 vcpu;
	__u32 reason;
	__u64 ip;
	__u8 _pad[32];
};

/* The hypervisor has taken the CPU away for stolen_ns since the last such record. */
struct record_steal {
	__u64 stolen_ns;
	__u64 since_ns; /* time of that record */
	__u8 _pad[32];
};

enum stack_kind {
	STACK_KERNEL = 1,
	STACK_USER = 2,	 /* by frame pointers: of programs without them, the innermost frame alone is right */
	STACK_OUTER = 3, /* REC_RUN: of the kernel, further out than those of the record before */
};

/*
 * REC_WAIT: where record.tid has waited, when it gets a CPU again after a long wait. REC_SAMPLE:
 * where it is while it runs. REC_RUN: the same of one that has had its CPU for long. Addresses have
 * 48 bits, those of the kernel with the 49th and all further ones set; 0: there are no more frames.
 */
struct record_stack {
	__u32 pid;
	__u16 kind; /* enum stack_kind */
	__u16 high[STACK_FRAMES];
	__u32 low[STACK_FRAMES];
};

/* One flight-recorder record: 64 bytes, one cache line. */
struct record {
	__u16 type;    /* enum record_type */
	__u16 cpu;     /* in a ring of plain memory: the lap, the low bits of its part's number */
	__u32 tid;     /* of the current task; 0: idle */
	__u64 time_ns; /* there: 0 while it is written */
	union {
		__u64 raw[6]; /* all of it */
		struct record_switch sw;
		struct record_wake wake;
		struct record_migrate migrate;
		struct record_irq irq;
		struct record_softirq softirq;
		struct record_hrtimer hrtimer;
		struct record_block block;
		struct record_work work;
		struct record_process process;
		struct record_syscall syscall;
		struct record_work_queue queue;
		struct record_timer timer;
		struct record_fault fault;
		struct record_reclaim reclaim;
		struct record_lock lock;
		struct record_file_lock file_lock;
		struct record_power power;
		struct record_net net;
		struct record_throttle throttle;
		struct record_kvm kvm;
		struct record_steal steal;
		struct record_interrupts interrupts;
		struct record_stack stack;
	};
};

_Static_assert(sizeof(struct record) == RECORD_SIZE, "a record is one cache line");

/* What record_switch has beside names. */
struct short_switch {
	__u32 next_tid;
	__u32 next_pid;
	__s16 prev_prio;
	__s16 next_prio;
	__u32 prev_state;
};

/* What record_wake has beside the name. */
struct short_wake {
	__u32 tid;
	__u32 pid;
	__s16 prio;
	__u16 target_cpu;
	__u32 context; /* WAKER_*: what ran on top of the waker */
};

/*
 * A short record: sched_switch, sched_waking, sched_wakeup_new. In a ring of
 * plain memory the second one of a cache line follows when there is one: until
 * then its time is 0. Records of other types may have been written meanwhile, so
 * it is later than what is in some lines after it, but not than all of its part.
 */
struct short_record {
	__u16 type; /* enum record_type | RECORD_SHORT */
	__u16 cpu;
	__u32 tid;
	__u64 time_ns;
	union {
		__u64 raw[2]; /* all of it */
		struct short_switch sw;
		struct short_wake wake;
	};
};

_Static_assert(sizeof(struct short_record) == SHORT_SIZE, "two to a cache line");

enum names_size {
	NAMES_KEPT = 4, /* of a thread: programs that rename theirs do it once or twice */
};

/* A name of a thread. */
struct name_since {
	__u64 since_ns; /* 0: not known; 1: since before we were there */
	char comm[TASK_COMM_LEN];
};

/* What a thread is and was called, the latest first. */
struct task_name {
	struct name_since names[NAMES_KEPT];
};

#endif
