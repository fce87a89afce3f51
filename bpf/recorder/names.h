/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What threads are called, for records that carry their numbers alone. Kept
 * where names come and go: fork, rename (exec renames, too) and exit. Those of
 * threads that were there before are put in by a task iterator.
 */
#ifndef TAILCAM_RECORDER_NAMES_H
#define TAILCAM_RECORDER_NAMES_H

#include "abi/record.h"
#include "lib/state.h"
#include "lib/task.h"

/* Names of living threads; written where they change, read by the daemon. Sized by it. */
MAP(task_names, HASH, BPF_F_NO_PREALLOC, 1, u32, struct task_name);

/* And of those that are gone, for as long as history may have them; the same. */
MAP(gone_names, LRU_HASH, 0, 1, u32, struct task_name);

static __always_inline void name_put(u32 tid, struct task_name *name)
{
	bpf_map_update_elem(&task_names, &tid, name, BPF_ANY);
}

/* A new thread. */
static __always_inline void name_fork(struct task_struct *child, u64 now)
{
	struct task_name name = {};

	name.names[0].since_ns = now;
	COPY_COMM(name.names[0].comm, child);
	name_put(child->pid, &name);
}

/* The thread is about to be called otherwise. */
static __always_inline void name_rename(struct task_struct *p, const char *comm, u64 now)
{
	u32 tid = p->pid;
	struct task_name *old = bpf_map_lookup_elem(&task_names, &tid), name = {};

	name.names[0].since_ns = now;
	bpf_probe_read_kernel_str(name.names[0].comm, TASK_COMM_LEN, comm);
	if (old) {
		__builtin_memcpy(&name.names[1], old, (NAMES_KEPT - 1) * sizeof(struct name_since));
	} else {
		name.names[1].since_ns = 1;
		COPY_COMM(name.names[1].comm, p);
	}
	name_put(tid, &name);
}

/* The thread ends, or its number: at an exec, the one that did it takes that of its process. */
static __always_inline void name_end(u32 tid)
{
	struct task_name *name = bpf_map_lookup_elem(&task_names, &tid);

	if (!name)
		return;
	bpf_map_update_elem(&gone_names, &tid, name, BPF_ANY);
	bpf_map_delete_elem(&task_names, &tid);
}

/* A thread that was there before; one that has begun or changed its name since is known. */
static __always_inline void name_seed(struct task_struct *p)
{
	struct task_name name = {};
	u32 tid = p->pid;

	if (p->flags & PF_EXITING)
		return;
	name.names[0].since_ns = 1;
	COPY_COMM(name.names[0].comm, p);
	bpf_map_update_elem(&task_names, &tid, &name, BPF_NOEXIST);
}

#endif
