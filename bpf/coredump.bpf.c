//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Threads that end by a signal whose default action is to dump core. Loaded by
 * internal/trigger while a rule asks for it. The signal tells when, how and to
 * whom; whether a core was written is only known at the end, from the exit code.
 */
#include "abi/death.h"
#include "lib/kernel.h"

/* SIG_KERNEL_COREDUMP_MASK, include/linux/signal.h: QUIT ILL TRAP ABRT FPE SEGV BUS SYS XCPU XFSZ; the same on x86 and arm64. */
#define CORE_SIGNALS                                                                                       \
	(1ull << 3 | 1ull << 4 | 1ull << 5 | 1ull << 6 | 1ull << 8 | 1ull << 11 | 1ull << 7 | 1ull << 31 | \
	 1ull << 24 | 1ull << 25)

struct sigaction {
	void *sa_handler; /* NULL: SIG_DFL */
} CORE;

struct k_sigaction {
	struct sigaction sa;
} CORE;

struct kernel_siginfo {
	int si_code;
	union {
		struct {
			int _pid;
		} _kill;
		struct {
			void *_addr;
		} _sigfault;
	} _sifields;
} CORE;

/* What lib/kernel.h has no need of. */
struct task_struct___death {
	int exit_code;
} CORE;

/* Those that got such a signal and have not ended, by tid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, DEATHS);
	__type(key, u32);
	__type(value, struct death);
} dying SEC(".maps");

/* Messages: struct death. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, DEATH_RING);
} deaths SEC(".maps");

/* What is being filled, of each CPU and program: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct death);
} death_scratch SEC(".maps");

u64 deaths_lost; /* for which there was no room in the ring buffer */

static __always_inline void describe(struct death *d, struct task_struct *p)
{
	d->pid = p->tgid;
	d->tid = p->pid;
	d->uid = bpf_get_current_uid_gid();
	d->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(d->comm, sizeof(d->comm));
}

static __always_inline void read_args(struct death *d, struct task_struct *p)
{
	struct mm_struct *mm = BPF_CORE_READ(p, mm);
	unsigned long start = BPF_CORE_READ(mm, arg_start);
	unsigned long bytes = BPF_CORE_READ(mm, arg_end) - start;

	if (bytes > DEATH_ARGS)
		bytes = DEATH_ARGS;
	/* Fails if that memory is not there: then it stays unknown. */
	if (start && bytes && !bpf_probe_read_user(d->args, bytes, (void *)start))
		d->args_bytes = bytes;
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(signal_deliver, int sig, struct kernel_siginfo *info, struct k_sigaction *ka)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u32 own = 0, tid = p->pid;
	struct death *d;
	int code;

	if (sig < 1 || sig > 63 || !(CORE_SIGNALS & 1ull << sig))
		return 0;
	if (BPF_CORE_READ(ka, sa.sa_handler)) /* a handler, or SIG_IGN */
		return 0;
	d = bpf_map_lookup_elem(&death_scratch, &own);
	if (!d)
		return 0;
	d->signal_ns = bpf_ktime_get_ns();
	d->exit_ns = 0;
	d->status = sig;
	d->address = 0;
	d->sender = 0;
	d->args_bytes = 0;
	describe(d, p);
	code = BPF_CORE_READ(info, si_code);
	d->code = code;
	if (code <= 0)
		d->sender = BPF_CORE_READ(info, _sifields._kill._pid);
	else if (code < 0x80) /* SI_KERNEL */
		d->address = (u64)BPF_CORE_READ(info, _sifields._sigfault._addr);
	read_args(d, p);
	bpf_map_update_elem(&dying, &tid, d, BPF_ANY); /* if it is full, the end alone is told */
	return 0;
}

/*
 * Until 6.15 after exit_mm(), later before ("exit: move and extend sched_process_exit() tracepoint"): nothing
 * of the process's memory is read here. The other threads of the process end with the signal in their exit
 * codes, too, but without DEATH_DUMPED: they were killed before the core was written (coredump_wait()).
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	int status = BPF_CORE_READ((struct task_struct___death *)p, exit_code);
	u32 own = 1, tid = p->pid;
	struct death *d, *known = bpf_map_lookup_elem(&dying, &tid);

	if (!known && !(status & DEATH_DUMPED))
		return 0;
	d = bpf_map_lookup_elem(&death_scratch, &own);
	if (!d)
		return 0;
	if (known) {
		__builtin_memcpy(d, known, sizeof(*d));
		bpf_map_delete_elem(&dying, &tid);
		if ((status & DEATH_SIGNAL) != (d->status & DEATH_SIGNAL))
			return 0; /* of something else: init of a container survives such signals */
	} else {
		__builtin_memset(d, 0, sizeof(*d));
		describe(d, p);
	}
	d->exit_ns = bpf_ktime_get_ns();
	d->status = status & (DEATH_SIGNAL | DEATH_DUMPED);
	if (bpf_ringbuf_output(&deaths, d, sizeof(*d), 0))
		__sync_fetch_and_add(&deaths_lost, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
