/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The ring buffer to the daemon: outliers and other messages. Each owner has a
 * reserved share of it (struct ring_use).
 */
#ifndef TAILCAM_MESSAGES_H
#define TAILCAM_MESSAGES_H

#include "abi/message.h"
#include "lib/state.h"

/* Bytes of the ring buffer that each owner has for itself, and that all have in common. Written by the daemon. */
volatile u64 ring_share;
volatile u64 ring_common;

/* Outliers and messages; written here, read by the daemon. Sized by it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} outliers SEC(".maps");

/* Who has how many bytes of it in flight, by owner; sent written here, read by the daemon. Fixed size. */
MAP(ring_uses, ARRAY, BPF_F_MMAPABLE, RING_OWNERS, u32, struct ring_use);

#define BPF_RB_AVAIL_DATA 0

/* What a message that follows an outlier brings. */
#define OUTLIER_LATER (OUTLIER_USER_LATER | OUTLIER_CONTEXT_LATER)

/*
 * Claims bytes of the ring buffer for a record of size bytes, before it is
 * reserved. An owner always has its share. Beyond it, it may use what all have
 * in common, so that the shares of the others stay free whatever it does.
 */
static __always_inline struct ring_use *ring_claim(u32 owner, u64 size)
{
	struct ring_use *u = bpf_map_lookup_elem(&ring_uses, &owner);
	u64 mine;

	if (!u)
		return NULL;
	size += RING_HEADER;
	mine = __sync_fetch_and_add(&u->sent, size) + size - *(volatile u64 *)&u->read;
	if ((s64)mine <= (s64)ring_share || bpf_ringbuf_query(&outliers, BPF_RB_AVAIL_DATA) + size <= ring_common)
		return u;
	__sync_fetch_and_add(&u->sent, -size);
	__sync_fetch_and_add(&u->refused, 1);
	return NULL;
}

/* Gives back what was claimed for a record that was not sent. */
static __always_inline void ring_unclaim(struct ring_use *u, u64 size)
{
	__sync_fetch_and_add(&u->sent, -(size + RING_HEADER));
	__sync_fetch_and_add(&u->refused, 1);
}

/* Room for a message of an owner; NULL: there is none. Of constant size, as the helper wants it. */
static __always_inline void *message_reserve(u32 owner, u64 size)
{
	struct ring_use *use = ring_claim(owner, size);
	void *m;

	if (!use)
		return NULL;
	m = bpf_ringbuf_reserve(&outliers, size, 0);
	if (!m)
		ring_unclaim(use, size);
	return m;
}

/* The same for what is worth less than an outlier: while no more than a quarter of the common part is in use. */
static __always_inline void *message_reserve_spare(u32 owner, u64 size)
{
	struct ring_use *u;

	if (bpf_ringbuf_query(&outliers, BPF_RB_AVAIL_DATA) <= ring_common / 4)
		return message_reserve(owner, size);
	u = bpf_map_lookup_elem(&ring_uses, &owner);
	if (u)
		__sync_fetch_and_add(&u->refused, 1);
	return NULL;
}

#endif
