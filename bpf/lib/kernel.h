/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types that tailcam reads, reduced to the members it reads.
 * CO-RE relocates every access to the running kernel's layout, so this page
 * replaces a machine-made vmlinux.h.
 */
#ifndef TAILCAM_KERNEL_H
#define TAILCAM_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef __u64 u64;
typedef __s64 s64;
typedef __u32 u32;
typedef __s32 s32;
typedef __u16 u16;
typedef __u8 u8;

#define CORE __attribute__((preserve_access_index))

/* 2^64 by the golden ratio: the upper bits of a product with it depend on all of a number's (include/linux/hash.h). */
#define HASH_FACTOR 0x9e3779b97f4a7c15ULL

/* include/linux/sched.h */
#define PF_EXITING 0x00000004
#define PF_MEMALLOC 0x00000800
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000 /* 6.4+ */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000
#define TASK_INTERRUPTIBLE 0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_DEAD 0x0080
#define TASK_NOLOAD 0x0400
#define TASK_RTLOCK_WAIT 0x1000
#define TASK_FROZEN 0x8000
#define JOBCTL_TRAP_FREEZE (1UL << 23) /* include/linux/sched/jobctl.h */
#define MAX_RT_PRIO 100		       /* include/linux/sched/prio.h */

/*
 * The lowest three bits of thread_info.flags: TIF_SIGPENDING is one of them, by architecture and version which
 * (arch/x86/include/asm/thread_info.h, arch/arm64's, since 6.18 include/asm-generic/thread_info_tif.h).
 */
#define TIF_SIGPENDING_OR_NEAR 7

struct thread_info {
	unsigned long flags;
	u32 status;	   /* x86 */
	u32 cpu;	   /* 5.16+ on x86 and arm64 */
	u64 preempt_count; /* arm64: the count in the low half */
} CORE;

/* A number that is a struct, and that every kernel has. */
struct refcount_struct {
	struct {
		int counter;
	} refs;
} CORE;

struct pcpu_hot {
	int preempt_count;
} CORE;

struct kernel_stat {
	unsigned int softirqs[10];
} CORE;

struct kernfs_node {
	u64 id;
} CORE;

struct cgroup {
	struct kernfs_node *kn;
} CORE;

struct css_set {
	struct cgroup *dfl_cgrp; /* the cgroup v2 one */
} CORE;

typedef struct {
	u32 val;
} kuid_t;

struct ns_common {
	unsigned int inum;
} CORE;

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
	struct ns_common ns;
} CORE;

struct cred {
	kuid_t uid;
	struct user_namespace *user_ns;
} CORE;

struct pid_namespace {
	struct ns_common ns;
} CORE;

struct upid {
	int nr;
} CORE;

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* level + 1 of them */
} CORE;

struct nsproxy {
	struct pid_namespace *pid_ns_for_children;
} CORE;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} CORE;

struct task_group {
	struct cgroup_subsys_state css;
} CORE;

struct rq {
	int cpu;
	u64 clock;
	u64 clock_task;		/* what clocks of tasks are from: without time that was stolen */
	u64 prev_steal_time_rq; /* with CONFIG_PARAVIRT_TIME_ACCOUNTING */
} CORE;

struct cfs_rq {
	struct rq *rq;
	struct task_group *tg;
	unsigned int throttled : 1; /* with CONFIG_CFS_BANDWIDTH, as throttle_count; 6.18+ a bit field */
	int throttle_count;
} CORE;

struct sched_entity {
	u64 exec_start; /* rq.clock_task, when sum_exec_runtime was brought up to date */
	u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq; /* with CONFIG_FAIR_GROUP_SCHED: that of its group on its CPU */
} CORE;

struct sched_info {
	unsigned long long last_queued; /* by rq.clock; 0: on no run queue. With CONFIG_SCHED_INFO */
} CORE;

typedef struct {
	unsigned long sig[1];
} CORE sigset_t;

struct sigpending {
	sigset_t signal;
} CORE;

struct signal_struct {
	struct sigpending shared_pending;
} CORE;

struct mm_struct {
	unsigned long start_code;
	unsigned long start_stack;
	unsigned long arg_start;
	unsigned long arg_end;
} CORE;

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int on_rq;
	void *stack;
	int prio;
	struct sched_entity se;
	bool throttled; /* 6.18+, with CONFIG_CFS_BANDWIDTH */
	struct sched_info sched_info;
	unsigned int in_iowait : 1;
	int softirq_disable_cnt; /* with CONFIG_PREEMPT_RT */
	unsigned long jobctl;
	struct signal_struct *signal;
	sigset_t blocked;
	struct sigpending pending;
	int pid;
	int tgid;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u64 start_boottime;
	unsigned long nvcsw; /* times that it left its CPU */
	unsigned long nivcsw;
	const struct cred *cred;
	char comm[16];
	struct css_set *cgroups;
	struct nsproxy *nsproxy;
	struct pid *thread_pid;
	void *bpf_storage;
} CORE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

struct linux_binprm;

struct irqaction {
	const char *name;
} CORE;

struct hrtimer {
	void *function;
	u8 is_soft; /* expires in the softirq */
} CORE;

struct hrtimer_cpu_base {
	unsigned int in_hrtirq : 1; /* with CONFIG_HIGH_RES_TIMERS */
} CORE;

struct timer_list {
	void *function;
} CORE;

struct list_head {
	struct list_head *next;
} CORE;

struct wait_queue_head {
	struct list_head head;
} CORE;

struct wait_queue_entry {
	void *private;
	void *func;
	struct list_head entry;
} CORE;

struct socket_wq {
	struct wait_queue_head wait;
} CORE;

struct hlist_nulls_node {
	struct hlist_nulls_node *next; /* the last one has its lowest bit set */
} CORE;

struct hlist_nulls_head {
	struct hlist_nulls_node *first;
} CORE;

struct inet_listen_hashbucket {
	struct hlist_nulls_head nulls_head;
} CORE;

struct inet_hashinfo {
	unsigned int lhash2_mask;
	struct inet_listen_hashbucket *lhash2;
} CORE;

struct inet_timewait_death_row {
	struct inet_hashinfo *hashinfo;
} CORE;

struct netns_ipv4 {
	struct inet_timewait_death_row tcp_death_row;
} CORE;

struct net {
	u32 hash_mix;
	struct netns_ipv4 ipv4;
} CORE;

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	u32 skc_daddr; /* as in packets */
	u32 skc_rcv_saddr;
	u16 skc_dport; /* as in packets */
	u16 skc_num;   /* the own port */
	u16 skc_family;
	volatile u8 skc_state;
	possible_net_t skc_net;
	struct hlist_nulls_node skc_nulls_node;
} CORE;

struct sock {
	struct sock_common __sk_common;
	struct socket_wq *sk_wq;
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
	struct timer_list sk_timer;
} CORE;

/* 7.0+: TCP's timers have changed places. */
struct sock___tcp_timer {
	struct timer_list tcp_retransmit_timer;
} CORE;

struct inet_connection_sock {
	struct timer_list icsk_retransmit_timer;
	struct timer_list icsk_delack_timer;
	struct timer_list icsk_keepalive_timer; /* 7.0+ */
	unsigned long icsk_timeout;		/* before 6.18 */
	u8 icsk_pending;
	struct {
		u8 pending;
		unsigned long timeout; /* before 6.18 */
	} icsk_ack;
} CORE;

struct tcp_sock {
	u32 rcv_nxt;
	u32 copied_seq;
	u32 snd_una;
	u32 snd_wnd;
	u32 write_seq;
	u64 bytes_sent;
	u64 bytes_retrans;
	u64 bytes_received;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans; /* segments */
} CORE;

struct poll_wqueues {
	struct task_struct *polling_task;
} CORE;

struct eventpoll {
	struct wait_queue_head wq;
} CORE;

struct epitem {
	struct eventpoll *ep;
} CORE;

struct eppoll_entry {
	struct epitem *base;
	struct wait_queue_entry wait;
} CORE;

struct workqueue_struct {
	char name[24]; /* 6.9+: 32 */
} CORE;

struct pool_workqueue {
	struct workqueue_struct *wq;
} CORE;

typedef struct {
	long counter;
} atomic_long_t;

struct work_struct {
	atomic_long_t data; /* the lowest bit: it is queued (WORK_STRUCT_PENDING_BIT) */
	void *func;
} CORE;

struct rt_mutex_base {
	struct task_struct *owner; /* the lowest bit says that others wait */
} CORE;

struct rwbase_rt {
	struct rt_mutex_base rtmutex;
} CORE;

struct mutex {
	atomic_long_t owner; /* real-time kernels have none */
} CORE;

struct rw_semaphore {
	atomic_long_t owner; /* the same */
} CORE;

struct net_device {
	char name[16];
} CORE;

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
} CORE;

struct napi_struct {
	struct net_device *dev;
	unsigned long state;
} CORE;

struct softnet_data {
	struct napi_struct backlog;
	bool in_net_rx_action; /* 6.4+ */
} CORE;

struct kvm_vcpu_arch {
	unsigned long regs[17]; /* x86: up to 7.1 the last is the instruction pointer */
} CORE;

struct kvm_vcpu_arch___rip {
	unsigned long rip; /* 7.2+ */
} CORE;

struct kvm_vcpu {
	int vcpu_id;
	struct kvm_vcpu_arch arch;
} CORE;

struct kvm_vcpu___rip {
	struct kvm_vcpu_arch___rip arch;
} CORE;

struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
} CORE;

struct request_queue {
	struct gendisk *disk; /* 5.15+ */
} CORE;

struct request {
	struct request_queue *q;
	u32 cmd_flags;
	unsigned int __data_len;
	u64 __sector;
	u64 start_time_ns;    /* when it was made */
	u64 io_start_time_ns; /* when the device got it; 0: not known */
} CORE;

#endif
