//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Threads whose program publishes their contexts, with what these are found by. Loaded by
 * tracker/kernel with the maps of the main object, when somebody asks. It reads no memory of
 * a process, which may make its reader wait: a helper does.
 */
#include "lib/thread_context.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* User space reads a struct context_thread of each. */
SEC("iter/task")
int context_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct context_thread out = {};
	struct context_place *place;

	if (!p)
		return 0;
	place = context_place_of(p);
	if (!place)
		return 0;
	out.pointer = thread_pointer(p);
	out.pid = p->tgid;
	out.tid = p->pid;
	out.switches = p->nvcsw + p->nivcsw;
	out.running = read_on_cpu(p);
	out.place = *place;
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}
