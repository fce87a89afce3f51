/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flight recorder's records: the part of abi.h that snapshot/trace decodes. */
#ifndef TAILCAM_ABI_RECORD_H
#define TAILCAM_ABI_RECORD_H

#define TASK_COMM_LEN 16

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
};

/* sched_switch; the task that leaves is record.tid. */
struct rec_switch {
	char prev_comm[TASK_COMM_LEN];
	char next_comm[TASK_COMM_LEN];
	__u32 next_tid;
	__u32 next_pid;
	__s16 prev_prio; /* kernel priority: 120 is nice 0, below 100 real time */
	__s16 next_prio;
	__u32 prev_state; /* as the kernel gives it; bit 31: preempted */
};

#define PREV_PREEMPTED 0x80000000u

/* sched_waking and sched_wakeup_new: tid becomes runnable; the waker is record.tid. */
struct rec_wake {
	char comm[TASK_COMM_LEN];
	__u32 tid;
	__u32 pid;
	__s32 prio;
	__s32 target_cpu;
	__u8 _pad[16];
};

/* sched_migrate_task. */
struct rec_migrate {
	char comm[TASK_COMM_LEN];
	__u32 tid;
	__s32 prio;
	__s32 orig_cpu;
	__s32 dest_cpu;
	__u8 _pad[16];
};

/* irq_handler_entry (name) and irq_handler_exit (ret). */
struct rec_irq {
	__s32 irq;
	__s32 ret;
	char name[32];
	__u8 _pad[8];
};

/* softirq_entry and softirq_exit. */
struct rec_softirq {
	__u32 vec;
	__u8 _pad[44];
};

/* hrtimer_expire_entry and hrtimer_expire_exit (hrtimer only). */
struct rec_hrtimer {
	__u64 hrtimer;
	__u64 function;
	__s64 now;
	__u8 _pad[24];
};

/* block_rq_insert, block_rq_issue, block_rq_complete (error, bytes of this completion). */
struct rec_block {
	__u64 rq;
	__u64 sector; /* of 512 bytes */
	__u32 dev;    /* MKDEV: major << 20 | minor */
	__u32 bytes;
	__u32 cmd_flags; /* REQ_OP in the low 8 bits */
	__s32 error;	 /* blk_status_t */
	char comm[TASK_COMM_LEN];
};

/* workqueue_execute_start and workqueue_execute_end. */
struct rec_work {
	__u64 work;
	__u64 function;
	__u8 _pad[32];
};

/* sched_process_fork, _exec (old tid in child_tid), _exit. */
struct rec_process {
	char comm[TASK_COMM_LEN];	/* of the parent, or of the task itself */
	char child_comm[TASK_COMM_LEN]; /* fork only */
	__u32 pid;			/* process (thread group) id of record.tid */
	__u32 child_tid;		/* fork: new task; exec: tid before */
	__u32 child_pid;		/* fork only */
	__s32 prio;
};

/* sys_enter and sys_exit (ret). */
struct rec_syscall {
	__u32 nr;
	__u32 pid;
	__s64 ret;
	__u8 _pad[32];
};

/* One flight-recorder record: 64 bytes, one cache line. */
struct record {
	__u16 type; /* enum record_type */
	__u16 cpu;
	__u32 tid; /* of the current task; 0: idle */
	__u64 time_ns;
	union {
		struct rec_switch sw;
		struct rec_wake wake;
		struct rec_migrate migrate;
		struct rec_irq irq;
		struct rec_softirq softirq;
		struct rec_hrtimer hrtimer;
		struct rec_block block;
		struct rec_work work;
		struct rec_process process;
		struct rec_syscall syscall;
		__u64 raw[6];
	};
};

_Static_assert(sizeof(struct record) == 64, "a record is one cache line");

#endif
