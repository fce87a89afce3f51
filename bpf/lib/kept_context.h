/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Contexts that are wanted when another task is current: read when their thread is, in the
 * kernel (see lib/thread_context.h), and kept until then.
 */
#ifndef TAILCAM_KEPT_CONTEXT_H
#define TAILCAM_KEPT_CONTEXT_H

#include "lib/thread_context.h"

/* Written when the thread is current, read at the outlier and for snapshots. Sized by the daemon. */
MAP(kept_contexts, LRU_HASH, 0, 1, struct context_key, struct kept_context);

/* Keeps the context of current; 0: it has none. */
static __noinline int context_keep(u32 of, u32 kind, u64 now)
{
	struct context_key key = {.of = of, .kind = kind};
	struct kept_context kept = {.time_ns = now};

	if (!context_read(kept.id))
		return 0;
	bpf_map_update_elem(&kept_contexts, &key, &kept, BPF_ANY);
	return 1;
}

#endif
